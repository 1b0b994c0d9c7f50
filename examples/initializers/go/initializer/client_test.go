package initializer

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	admissionv1 "example.com/pinned-images/gen/admissionv1"
	v1 "example.com/pinned-images/gen/gatepostv1"
	"example.com/pinned-images/gen/runtime"
)

type calls = grpc.BidiStreamingServer[v1.InitializerMessage, v1.SidecarMessage]

// sidecar plays one of these for each stream.
type sidecar struct {
	v1.UnimplementedInitializersServer
	streams chan func(calls) error
}

func (sidecar *sidecar) Attach(calls calls) error { return (<-sidecar.streams)(calls) }

// begin serves a sidecar, and runs a client before it until the test ends.
func begin(t *testing.T, act Act, streams ...func(calls) error) {
	listener, server := bufconn.Listen(1<<20), grpc.NewServer()
	played := &sidecar{streams: make(chan func(calls) error, len(streams))}
	v1.RegisterInitializersServer(server, played)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	dial := func(context.Context, string) (net.Conn, error) { return listener.Dial() }
	connection, err := grpc.NewClient("passthrough:sidecar", grpc.WithContextDialer(dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	for at, stream := range streams {
		played.streams <- func(calls calls) error {
			err := stream(calls)
			if at == len(streams)-1 {
				close(over)
			}
			return err
		}
	}
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	client := &Client{Name: "a.example.com", Token: "t"}
	ended := make(chan struct{})
	go func() { client.Run(ctx, act, connection); close(ended) }()
	select {
	case <-over:
	case <-ctx.Done():
		t.Fatal("the streams were not played to their end")
	}
	stop()
	<-ended
}

// next is the next message that is no heartbeat.
func next(t *testing.T, calls calls) *v1.InitializerMessage {
	for {
		message, err := calls.Recv()
		if err != nil {
			t.Errorf("the client has gone: %v", err)
			return &v1.InitializerMessage{}
		}
		if message.GetHeartbeat() == nil {
			return message
		}
	}
}

func attach(t *testing.T, calls calls) {
	if claim := next(t, calls).GetClaim(); claim.GetName() != "a.example.com" || claim.GetToken() != "t" {
		t.Errorf("the claim is %v", claim)
	}
	_ = calls.Send(&v1.SidecarMessage{Message: &v1.SidecarMessage_Attached{Attached: &v1.Attached{LeaseMilliseconds: 300}}})
}

func ask(calls calls, number uint64, attempt uint32, uid string) {
	review := &admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{Uid: &uid, Object: &runtime.RawExtension{Raw: []byte(`{}`)}}}
	task := &v1.InitializerTask{Task: number, Attempt: attempt, Milliseconds: 10_000, Review: review}
	_ = calls.Send(&v1.SidecarMessage{Message: &v1.SidecarMessage_Task{Task: task}})
}

func TestARepeatedRequestIsAnsweredWithoutActingAgain(t *testing.T) {
	asked := 0
	act := func(_ context.Context, object *Object) (Change, error) {
		asked++
		return Change{Patch: []string{}, Add: []string{"b"}}, nil
	}
	begin(t, act, func(calls calls) error {
		attach(t, calls)
		ask(calls, 1, 1, "u")
		first := next(t, calls).GetAnswer()
		ask(calls, 2, 2, "u")
		second := next(t, calls).GetAnswer()
		if string(first.GetDone().GetPatch()) != "[]" || first.GetDone().GetAdd()[0] != "b" || second.GetTask() != 2 || second.GetAttempt() != 2 {
			t.Errorf("the answers are %v and %v", first, second)
		}
		return status.Error(codes.Unavailable, "the sidecar ends")
	}, func(calls calls) error {
		attach(t, calls)
		ask(calls, 1, 1, "u")
		if next(t, calls).GetAnswer().GetDone() == nil || asked != 1 {
			t.Errorf("it has acted %d times, once more at the next sidecar", asked)
		}
		return nil
	})
}

func TestARefusalIsTheProcessesOwnAndAPanicIsAnError(t *testing.T) {
	act := func(_ context.Context, object *Object) (Change, error) {
		switch object.Request.GetUid() {
		case "full":
			return Change{}, &Refusal{Code: 429, Reason: "TooManyRequests", Message: "wait"}
		case "broken":
			panic("a fault of the process")
		}
		return Change{}, errors.New("no")
	}
	begin(t, act, func(calls calls) error {
		attach(t, calls)
		for number, uid := range []string{"full", "broken", "other"} {
			ask(calls, uint64(number), 1, uid)
			if fail, code := next(t, calls).GetAnswer().GetFail(), []int32{429, 500, 403}[number]; fail.GetCode() != code {
				t.Errorf("%s: %v", uid, fail)
			}
		}
		return nil
	})
}

func TestHeartbeatsAreSentAndACancelledTaskIsNotAnswered(t *testing.T) {
	began := make(chan struct{})
	act := func(ctx context.Context, _ *Object) (Change, error) {
		close(began)
		<-ctx.Done()
		return Change{}, ctx.Err()
	}
	begin(t, act, func(calls calls) error {
		attach(t, calls)
		ask(calls, 1, 1, "u")
		<-began
		_ = calls.Send(&v1.SidecarMessage{Message: &v1.SidecarMessage_Cancel{Cancel: &v1.Cancel{Task: 1}}})
		for beats := 0; beats < 2; beats++ {
			if message, err := calls.Recv(); err != nil || message.GetHeartbeat() == nil {
				t.Errorf("not a heartbeat: %v %v", message, err)
			}
		}
		return nil
	})
}
