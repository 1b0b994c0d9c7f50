package main

import (
	"context"
	"log"
	"time"

	"google.golang.org/grpc"

	v1 "example.com/pinned-images/gen/gatepostv1"
	metav1 "example.com/pinned-images/gen/metav1"
)

// An object and what stands around it; the library's default is 4 MiB.
const largest = 16 << 20

// attach claims a name and has act do each task, one after another, until the stream ends.
func attach(client v1.InitializersClient, claim *v1.Claim, act func(*v1.InitializerTask) ([]byte, error)) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stream, err := client.Attach(ctx, grpc.MaxCallRecvMsgSize(largest))
	if err != nil {
		return err
	}
	// One goroutine sends; Recv says how the stream has ended.
	say := make(chan *v1.InitializerMessage, 16)
	say <- &v1.InitializerMessage{Message: &v1.InitializerMessage_Claim{Claim: claim}}
	go func() {
		beat := time.NewTicker(3 * time.Second)
		defer beat.Stop()
		for ctx.Err() == nil {
			message := &v1.InitializerMessage{Message: &v1.InitializerMessage_Heartbeat{Heartbeat: &v1.Heartbeat{}}}
			select {
			case message = <-say:
			case <-beat.C:
			case <-ctx.Done():
			}
			_ = stream.Send(message)
		}
	}()
	for {
		message, err := stream.Recv()
		if err != nil {
			return err
		}
		if message.GetAttached() != nil {
			log.Printf("attached as %s", claim.Name)
		}
		task := message.GetTask()
		if task == nil {
			continue
		}
		answer := &v1.InitializerAnswer{Task: task.Task, Attempt: task.Attempt}
		if patch, err := act(task); err != nil {
			code, reason, why := int32(403), "Forbidden", err.Error()
			status := &metav1.Status{Code: &code, Reason: &reason, Message: &why}
			answer.Outcome = &v1.InitializerAnswer_Fail{Fail: status}
		} else {
			answer.Outcome = &v1.InitializerAnswer_Done{Done: &v1.Done{Patch: patch}}
		}
		select {
		case say <- &v1.InitializerMessage{Message: &v1.InitializerMessage_Answer{Answer: answer}}:
		case <-stream.Context().Done():
		}
	}
}
