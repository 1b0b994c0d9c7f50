// Package initializer is a client of Gatepost for a process that acts as an initializer. It claims a name at every
// sidecar, sends heartbeats, attaches again when a stream ends, and knows a repeat. The process itself is one function:
// a new object in, a change or an error out.
//
// Copy this folder, or require its module; the messages are generated from Gatepost's proto/.
package initializer

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"google.golang.org/grpc"

	admissionv1 "example.com/pinned-images/gen/admissionv1"
	v1 "example.com/pinned-images/gen/gatepostv1"
)

const (
	// An object and what stands around it; gRPC's own limit is 4 MiB.
	largest = 16 << 20
	// Between heartbeats, before the sidecar has said how long its lease is.
	firstBeat = 3 * time.Second
	// Between attempts to attach: each pause is twice as long as the one before.
	firstPause, longestPause = time.Second, 30 * time.Second
)

// Object is a new object that is to be initialized.
type Object struct {
	// Request has its creator, its namespace and its resource.
	Request *admissionv1.AdmissionRequest
	// NamespaceLabels are those of the request's namespace, where they are known.
	NamespaceLabels map[string]string
	// Repeat says that another process had the object before, and may have acted.
	Repeat bool
}

// JSON is the object as the initializers before this one have changed it.
func (object *Object) JSON() []byte { return object.Request.GetObject().GetRaw() }

// Read decodes the object.
func (object *Object) Read(into any) error { return json.Unmarshal(object.JSON(), into) }

// Change is what the initializer does to an object.
type Change struct {
	// Patch is written as JSON: the operations of a JSON Patch (RFC 6902). Nil changes nothing.
	Patch any
	// Add names initializers of the resource that must act behind this one.
	Add []string
}

// Refusal is an error with a code and a reason for the creator. Any other error is a 403 Forbidden with its text.
type Refusal struct {
	Code            int32
	Reason, Message string
}

func (refusal *Refusal) Error() string { return refusal.Message }

// Act is the process's own part. Its context ends when nobody waits for the object any more.
type Act func(context.Context, *Object) (Change, error)

// Client acts for one initializer.
type Client struct {
	// Name of the initializer, and the token; empty where a client certificate says who it is.
	Name, Token string
	// Window is how many objects it acts on at once for each sidecar: 16 where it is 0; at most 256.
	Window uint32

	recent recentChanges
}

// Run acts at each of these sidecars until ctx ends; then it takes no more objects, and returns when those it has are
// answered. It calls act for several objects at once, and not for one that this process has changed a short time ago.
func (client *Client) Run(ctx context.Context, act Act, sidecars ...grpc.ClientConnInterface) {
	var running sync.WaitGroup
	for _, sidecar := range sidecars {
		running.Go(func() {
			for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, longestPause) {
				attached, err := newStream(client, act).last(ctx, sidecar)
				log.Printf("%s: the stream has ended: %v", client.Name, err)
				if attached {
					pause = firstPause
				}
				select {
				case <-time.After(pause):
				case <-ctx.Done():
				}
			}
		})
	}
	running.Wait()
}

// answer calls act, unless the answer is known. Nil where nobody waits for one.
func (client *Client) answer(ctx context.Context, task *v1.InitializerTask, act Act) *v1.InitializerAnswer {
	answer := &v1.InitializerAnswer{Task: task.Task, Attempt: task.Attempt}
	request := task.GetReview().GetRequest()
	object := &Object{Request: request, NamespaceLabels: task.NamespaceLabels, Repeat: task.Attempt > 1}
	identity := sha256.Sum256(fmt.Appendf(nil, "%q %s", request.GetUid(), object.JSON()))
	done := client.recent.find(identity)
	if done == nil {
		change, err := acted(ctx, object, act)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			done, err = change.done()
		}
		if err != nil {
			answer.Outcome = &v1.InitializerAnswer_Fail{Fail: statusOf(err)}
			return answer
		}
		client.recent.keep(identity, done)
	}
	answer.Outcome = &v1.InitializerAnswer_Done{Done: done}
	return answer
}

// acted calls act; a panic of it is an error.
func acted(ctx context.Context, object *Object, act Act) (change Change, err error) {
	defer func() {
		if recovered := recover(); recovered != nil {
			log.Printf("the initializer has panicked: %v", recovered)
			err = &Refusal{Code: 500, Reason: "InternalError", Message: "the initializer has failed"}
		}
	}()
	return act(ctx, object)
}

func (change Change) done() (*v1.Done, error) {
	if change.Patch == nil {
		return &v1.Done{Add: change.Add}, nil
	}
	patch, err := json.Marshal(change.Patch)
	return &v1.Done{Patch: patch, Add: change.Add}, err
}

func refusalOf(err error) *Refusal {
	var refusal *Refusal
	if errors.As(err, &refusal) {
		return refusal
	}
	return &Refusal{Code: 403, Reason: "Forbidden", Message: err.Error()}
}
