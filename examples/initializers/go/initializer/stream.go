package initializer

import (
	"context"
	"errors"
	"io"
	"log"
	"sync"
	"time"

	"google.golang.org/grpc"

	v1 "example.com/pinned-images/gen/gatepostv1"
	metav1 "example.com/pinned-images/gen/metav1"
)

// stream is one stream to one sidecar, from the claim of the name to the end.
type stream struct {
	client *Client
	act    Act
	say    chan *v1.InitializerMessage
	beat   *time.Ticker

	lock  sync.Mutex
	tasks map[uint64]context.CancelFunc
}

func newStream(client *Client, act Act) *stream {
	return &stream{client: client, act: act, say: make(chan *v1.InitializerMessage, 16),
		beat: time.NewTicker(firstBeat), tasks: map[uint64]context.CancelFunc{}}
}

// last returns when the stream has ended, and whether the sidecar had accepted the claim.
func (stream *stream) last(stopping context.Context, sidecar grpc.ClientConnInterface) (attached bool, err error) {
	ctx, end := context.WithCancel(context.WithoutCancel(stopping))
	defer end()
	defer stream.beat.Stop()
	calls, err := v1.NewInitializersClient(sidecar).Attach(ctx, grpc.MaxCallRecvMsgSize(largest))
	if err != nil {
		return false, err
	}
	claim := &v1.Claim{Name: stream.client.Name, Token: stream.client.Token, Window: stream.client.Window}
	stream.say <- &v1.InitializerMessage{Message: &v1.InitializerMessage_Claim{Claim: claim}}
	go stream.send(ctx, stopping, calls)
	for {
		message, err := calls.Recv()
		if errors.Is(err, io.EOF) {
			return attached, nil
		} else if err != nil {
			return attached, err
		}
		switch told := message.Message.(type) {
		case *v1.SidecarMessage_Attached:
			log.Printf("%s: attached", stream.client.Name)
			attached = true
			// Two may be lost.
			lease := time.Duration(told.Attached.LeaseMilliseconds) * time.Millisecond
			stream.beat.Reset(min(max(lease/3, 100*time.Millisecond), firstBeat))
		case *v1.SidecarMessage_Task:
			stream.begin(ctx, told.Task)
		case *v1.SidecarMessage_Cancel:
			stream.lock.Lock()
			if cancel := stream.tasks[told.Cancel.Task]; cancel != nil {
				cancel()
			}
			stream.lock.Unlock()
		}
	}
}

// send is the only one that sends; how the stream has ended, Recv says.
func (stream *stream) send(ctx, stopping context.Context, calls grpc.BidiStreamingClient[v1.InitializerMessage, v1.SidecarMessage]) {
	stop := stopping.Done()
	for {
		var message *v1.InitializerMessage
		select {
		case message = <-stream.say:
		case <-stream.beat.C:
			message = &v1.InitializerMessage{Message: &v1.InitializerMessage_Heartbeat{Heartbeat: &v1.Heartbeat{}}}
		case <-stop:
			stop = nil
			message = &v1.InitializerMessage{Message: &v1.InitializerMessage_Leave{Leave: &v1.Leave{}}}
		case <-ctx.Done():
			return
		}
		_ = calls.Send(message)
	}
}

// begin acts on a task beside the stream.
func (stream *stream) begin(ctx context.Context, task *v1.InitializerTask) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(task.Milliseconds)*time.Millisecond)
	stream.lock.Lock()
	stream.tasks[task.Task] = cancel
	stream.lock.Unlock()
	go func() {
		defer cancel()
		if answer := stream.client.answer(ctx, task, stream.act); answer != nil {
			message := &v1.InitializerMessage{Message: &v1.InitializerMessage_Answer{Answer: answer}}
			select {
			case stream.say <- message:
			case <-ctx.Done():
			}
		}
		stream.lock.Lock()
		delete(stream.tasks, task.Task)
		stream.lock.Unlock()
	}()
}

func statusOf(err error) *metav1.Status {
	refusal := refusalOf(err)
	return &metav1.Status{Code: &refusal.Code, Reason: &refusal.Reason, Message: &refusal.Message}
}
