package admission

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/component-base/tracing"
)

const (
	// connectWithin bounds how long a call waits for a connection before the failure policy decides: long enough for a
	// new sidecar to take the place of the old one.
	connectWithin = 250 * time.Millisecond
	firstBackoff  = 10 * time.Millisecond
	// maxBackoff, with its jitter, is shorter than [connectWithin]: a call that waits meets an attempt.
	maxBackoff = 100 * time.Millisecond
	// handshakeTimeout bounds one attempt. A busy sidecar takes its time; only the wait of a call is short.
	handshakeTimeout = 5 * time.Second
	// keepaliveTime and keepaliveTimeout end a connection whose other end is frozen or gone.
	keepaliveTime    = 10 * time.Second
	keepaliveTimeout = 3 * time.Second
	// maxConnections bounds the connections of a server with many cores.
	maxConnections = 16
	// fullLoad is what a connection carries before another one to the same sidecar is used, in bytes: each has a thread of
	// the sidecar for itself, and calls that share one also share reads and writes, of the hooks' connections too.
	fullLoad = 256 << 10
	// callLoad is what a call counts beside its message.
	callLoad    = 8 << 10
	windowBytes = 1 << 20
	// maxAnswerBytes bounds a verdict: a patch may replace an object of the largest size that etcd takes, escaped.
	maxAnswerBytes = 8 << 20
	// maxErrorText bounds what is repeated of a sidecar's words, in bytes.
	maxErrorText = 1 << 10

	auditIDKey         = "audit-id"
	namespaceLabelsKey = "gatepost-namespace-labels-bin"
	versionsKey        = "gatepost-versions"
	unfinishedKey      = "gatepost-unfinished"

	// maxHoldsPerConnection is a little less than the calls that the sidecar takes at once on a connection.
	maxHoldsPerConnection = 250
)

// A method of gatepost.v1.Admission; see proto/gatepost/v1/admission.proto.
type method string

const (
	review   method = "/gatepost.v1.Admission/Review"
	mutate   method = "/gatepost.v1.Admission/Mutate"
	validate method = "/gatepost.v1.Admission/Validate"

	// validateProtobuf takes objects in protobuf; see proto/gatepost/v1/protobuf_admission.proto.
	validateProtobuf method = "/gatepost.v1.ProtobufAdmission/Validate"
)

var (
	// errNotConnected says that no byte of the call was sent.
	errNotConnected = errors.New("no connection to Gatepost")
	// errLate says that the call's time is over.
	errLate = errors.New("no answer in time")
	// errWantsJSON says that the sidecar has not decided a review with objects in protobuf, and wants them in JSON.
	errWantsJSON = errors.New("Gatepost wants the objects in JSON")
)

// A connection carries reviews.
type connection struct {
	*grpc.ClientConn
	// Calls that are under way, in bytes.
	load atomic.Int64
}

// A client of one sidecar: at most one connection for each core.
type client struct {
	address     string
	connections []*connection
	// Connections begin to be used in turn, as each may lead to another replica; otherwise the first takes what it can.
	inTurn bool
	next   atomic.Uint64
	// Opens another connection.
	dial func() (*grpc.ClientConn, error)
	// Ends with the client.
	lifetime context.Context
	stop     context.CancelFunc

	mutex sync.Mutex
	// Closed, and replaced, when a connection is in another state.
	changed chan struct{}
	// Connections for calls that wait, apart from those for reviews, which end the waits.
	holds []*holdConnection
}

// A holdConnection carries calls that wait.
type holdConnection struct {
	*grpc.ClientConn
	calls int
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
	// Neither a path nor an address is a URL, as which gRPC would read it.
	network, address, target := "tcp", configuration.Address, "dns:///"+configuration.Address
	if path, isSocket := strings.CutPrefix(configuration.Address, "unix://"); isSocket {
		network, address, target = "unix", path, "passthrough:///localhost"
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		// A proxy of the environment is not for the sidecar beside us, nor is a policy of retries in its DNS.
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: firstBackoff, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxBackoff},
			MinConnectTimeout: handshakeTimeout,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveTime, Timeout: keepaliveTimeout, PermitWithoutStream: true}),
		grpc.WithInitialWindowSize(windowBytes),
		grpc.WithInitialConnWindowSize(windowBytes),
		grpc.WithIdleTimeout(0),
		grpc.WithWriteBufferSize(128 << 10),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec{}), grpc.MaxCallRecvMsgSize(maxAnswerBytes)),
	}
	if network == "unix" {
		options = append(options, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}))
	}
	ctx, stop := context.WithCancel(context.Background())
	client := &client{address: configuration.Address, inTurn: network == "tcp", lifetime: ctx, stop: stop, changed: make(chan struct{})}
	client.dial = func() (*grpc.ClientConn, error) { return grpc.NewClient(target, options...) }
	for range min(runtime.GOMAXPROCS(0), maxConnections) {
		dialled, err := client.dial()
		if err != nil {
			client.close()
			return nil, fmt.Errorf("address %q: %w", configuration.Address, err)
		}
		client.connections = append(client.connections, &connection{ClientConn: dialled})
		go client.keep(ctx, dialled)
	}
	return client, nil
}

// keep connects whenever a connection is idle, and wakes the calls that wait whenever its state changes.
func (c *client) keep(ctx context.Context, connection *grpc.ClientConn) {
	for {
		state := connection.GetState()
		if state == connectivity.Idle {
			connection.Connect()
		}
		c.mutex.Lock()
		close(c.changed)
		c.changed = make(chan struct{})
		c.mutex.Unlock()
		if !connection.WaitForStateChange(ctx, state) {
			return
		}
	}
}

func (c *client) close() {
	c.stop()
	for _, connection := range c.connections {
		_ = connection.Close()
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, connection := range c.holds {
		_ = connection.Close()
	}
}

// holdConnection returns a connection for a call that waits, and what to do once it has ended.
func (c *client) holdConnection() (*grpc.ClientConn, func(), error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	at := slices.IndexFunc(c.holds, func(one *holdConnection) bool { return one.calls < maxHoldsPerConnection })
	if at < 0 {
		connection, err := c.dial()
		if err != nil {
			return nil, nil, err
		}
		at, c.holds = len(c.holds), append(c.holds, &holdConnection{ClientConn: connection})
	}
	one := c.holds[at]
	one.calls++
	return one.ClientConn, func() {
		c.mutex.Lock()
		defer c.mutex.Unlock()
		one.calls--
		// The first is kept: holds come again.
		if at := slices.Index(c.holds, one); one.calls == 0 && at > 0 {
			_ = one.Close()
			c.holds = slices.Delete(c.holds, at, at+1)
		}
	}, nil
}

// call sends a review. It never sends it a second time: gRPC itself does so only where the sidecar has said that it did
// not process the call.
func (c *client) call(ctx context.Context, connection *connection, method method, message *message) (*admissionv1.AdmissionResponse, error) {
	load := int64(message.len() + callLoad)
	connection.load.Add(load)
	defer connection.load.Add(-load)
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
	if message.stored {
		ctx = metadata.AppendToOutgoingContext(ctx, unfinishedKey, "stored")
	}
	if message.versions != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, versionsKey, message.versions)
	}
	var answer admissionv1.AdmissionReview
	var trailer metadata.MD
	if message.isProtobuf {
		method = validateProtobuf
	}
	if err := connection.Invoke(ctx, string(method), message, &answer, grpc.Trailer(&trailer)); err != nil {
		// A sidecar of an earlier version.
		if message.isProtobuf && status.Code(err) == codes.Unimplemented {
			return nil, errWantsJSON
		}
		return nil, callError(ctx, err, trailer)
	}
	return answer.Response, nil
}

// A requestError says that the sidecar cannot read or will not take this request, whoever asks and whenever: no failure
// policy opens it, or a client could write requests that nobody judges.
type requestError struct{ error }

// callError returns what a failed call is said to be.
func callError(ctx context.Context, err error, trailer metadata.MD) error {
	said := status.Convert(err)
	if said.Code() == codes.DeadlineExceeded && isOver(ctx) {
		return errLate
	}
	cause := fmt.Errorf("%s: %s", said.Code(), shorten(said.Message()))
	switch said.Code() {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Aborted, codes.Unknown:
		return cause
	case codes.ResourceExhausted:
		// It has no room at present, and says when to come again; otherwise the request is too large.
		if len(trailer.Get("grpc-retry-pushback-ms")) > 0 {
			return cause
		}
	}
	return requestError{cause}
}

// isOver reports whether the context's time is over. Its timer may fire after the sidecar, which has the same deadline, has
// ended the call.
func isOver(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

func shorten(text string) string { return cut(text, maxErrorText) }

// cut returns the first bytes of a text, at most so many, and says that there was more.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// sameConnection returns the connection used before if it is still ready, otherwise another.
func (c *client) sameConnection(ctx context.Context, used *connection) (*connection, error) {
	if used != nil && used.GetState() == connectivity.Ready {
		return used, nil
	}
	return c.connected(ctx)
}

// connected returns a connection that is ready, for which it waits for [connectWithin].
func (c *client) connected(ctx context.Context) (*connection, error) {
	first := 0
	if c.inTurn {
		first = int(c.next.Add(1) % uint64(len(c.connections)))
	}
	if connection := c.ready(first); connection != nil {
		return connection, nil
	}
	began := time.Now()
	wait, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	for {
		c.mutex.Lock()
		changed := c.changed
		c.mutex.Unlock()
		if connection := c.ready(first); connection != nil {
			return connection, nil
		}
		select {
		case <-changed:
		case <-wait.Done():
			return nil, fmt.Errorf("%w at %s within %s", errNotConnected, c.address, time.Since(began).Round(time.Millisecond))
		}
	}
}

// ready returns a connection that is ready: the first from that index on that can take more, or else the one that carries
// least; nil if none is ready.
func (c *client) ready(first int) *connection {
	var least *connection
	for n := range c.connections {
		connection := c.connections[(first+n)%len(c.connections)]
		if connection.GetState() != connectivity.Ready {
			continue
		}
		if connection.load.Load() < fullLoad {
			return connection
		}
		if least == nil || connection.load.Load() < least.load.Load() {
			least = connection
		}
	}
	return least
}

// encoded is a message that is sent, or was received, as it is.
type encoded []byte

// codec sends a [message] as it is, and reads an answer by Kubernetes' own type. It also has the messages of the rule index.
type codec struct{}

func (codec) Name() string { return "proto" }

func (codec) Marshal(value any) (mem.BufferSlice, error) {
	switch value := value.(type) {
	case *message:
		return value.buffers(), nil
	case encoded:
		return mem.BufferSlice{mem.SliceBuffer(value)}, nil
	case *indexPoll:
		return mem.BufferSlice{mem.SliceBuffer(value.marshal())}, nil
	}
	return nil, fmt.Errorf("cannot send a %T", value)
}

func (codec) Unmarshal(data mem.BufferSlice, value any) error {
	switch value := value.(type) {
	case *admissionv1.AdmissionReview:
		return value.Unmarshal(data.Materialize())
	case *encoded:
		*value = data.Materialize()
		return nil
	case *indexBeat:
		value.malformed = value.unmarshal(data.Materialize())
		return nil
	}
	return fmt.Errorf("cannot receive a %T", value)
}
