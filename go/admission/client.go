package admission

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/component-base/tracing"
)

const (
	// connectWithin bounds how long a call waits for a connection before the failure policy decides: long enough for a
	// new sidecar to take the place of the old one.
	connectWithin = 250 * time.Millisecond
	firstBackoff  = 10 * time.Millisecond
	// maxConnections bounds the connections of a server with many cores.
	maxConnections = 16
	windowBytes    = 1 << 20
	// maxAnswerBytes bounds a verdict: a patch may replace an object of the largest size that etcd takes, escaped.
	maxAnswerBytes = 16 << 20

	auditIDKey         = "audit-id"
	namespaceLabelsKey = "gatepost-namespace-labels-bin"
)

// A method of gatepost.v1.Admission; see proto/gatepost/v1/admission.proto.
type method string

const (
	review   method = "/gatepost.v1.Admission/Review"
	mutate   method = "/gatepost.v1.Admission/Mutate"
	validate method = "/gatepost.v1.Admission/Validate"
)

// errNotConnected says that no byte of the call was sent.
var errNotConnected = errors.New("no connection to Gatepost")

// A client of one sidecar: at most one connection for each core, used in turn.
type client struct {
	address     string
	connections []*grpc.ClientConn
	next        atomic.Uint64
}

func newClient(configuration *Configuration) (*client, error) {
	transport := insecure.NewCredentials()
	if configuration.TLS != nil {
		config, err := configuration.TLS.config()
		if err != nil {
			return nil, err
		}
		transport = credentials.NewTLS(config)
	}
	client := &client{address: configuration.Address}
	for range min(runtime.GOMAXPROCS(0), maxConnections) {
		connection, err := grpc.NewClient(configuration.Address,
			grpc.WithTransportCredentials(transport),
			// A proxy of the environment is not for the sidecar beside us.
			grpc.WithNoProxy(),
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: firstBackoff, Multiplier: 1.6, Jitter: 0.2, MaxDelay: connectWithin},
				MinConnectTimeout: connectWithin,
			}),
			grpc.WithInitialWindowSize(windowBytes),
			grpc.WithInitialConnWindowSize(windowBytes),
			grpc.WithIdleTimeout(0),
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec{}), grpc.MaxCallRecvMsgSize(maxAnswerBytes)),
		)
		if err != nil {
			client.close()
			return nil, fmt.Errorf("address %q: %w", configuration.Address, err)
		}
		connection.Connect()
		client.connections = append(client.connections, connection)
	}
	return client, nil
}

func (c *client) close() {
	for _, connection := range c.connections {
		_ = connection.Close()
	}
}

// call sends a review. It waits for a connection for [connectWithin], and never sends the review a second time: gRPC
// itself does so only where the sidecar has said that it did not process the call.
func (c *client) call(ctx context.Context, method method, message *message) (*admissionv1.AdmissionResponse, error) {
	connection, err := c.connected(ctx)
	if err != nil {
		return nil, err
	}
	if message.auditID != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, auditIDKey, message.auditID)
	}
	// The trace that the client's request belongs to, as kube-apiserver sends it to webhooks: with its own tracing off, too.
	trace := propagation.MapCarrier{}
	tracing.Propagators().Inject(ctx, trace)
	for name, value := range trace {
		ctx = metadata.AppendToOutgoingContext(ctx, name, value)
	}
	if message.namespaceLabels != nil {
		ctx = metadata.AppendToOutgoingContext(ctx, namespaceLabelsKey, string(message.namespaceLabels))
	}
	var answer admissionv1.AdmissionReview
	if err := connection.Invoke(ctx, string(method), message, &answer); err != nil {
		return nil, err
	}
	return answer.Response, nil
}

// connected returns a connection that is ready, the next one in turn if it is, and otherwise the first that becomes so.
func (c *client) connected(ctx context.Context) (*grpc.ClientConn, error) {
	first := int(c.next.Add(1) % uint64(len(c.connections)))
	for n := range c.connections {
		connection := c.connections[(first+n)%len(c.connections)]
		switch connection.GetState() {
		case connectivity.Ready:
			return connection, nil
		case connectivity.Idle:
			connection.Connect()
		}
	}
	ctx, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	connection := c.connections[first]
	for {
		state := connection.GetState()
		if state == connectivity.Ready {
			return connection, nil
		}
		if state == connectivity.Idle {
			connection.Connect()
		}
		if !connection.WaitForStateChange(ctx, state) {
			return nil, fmt.Errorf("%w at %s within %s", errNotConnected, c.address, connectWithin)
		}
	}
}

// codec sends a [message] as it is, and reads an answer by Kubernetes' own type.
type codec struct{}

func (codec) Name() string { return "proto" }

func (codec) Marshal(value any) (mem.BufferSlice, error) {
	message, ok := value.(*message)
	if !ok {
		return nil, fmt.Errorf("cannot send a %T", value)
	}
	return message.buffers(), nil
}

func (codec) Unmarshal(data mem.BufferSlice, value any) error {
	answer, ok := value.(*admissionv1.AdmissionReview)
	if !ok {
		return fmt.Errorf("cannot receive a %T", value)
	}
	return answer.Unmarshal(data.Materialize())
}
