package admission

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/klog/v2"
)

const (
	// followMethod is gatepost.v1.RuleIndex/Follow; see proto/gatepost/v1/rule_index.proto.
	followMethod = "/gatepost.v1.RuleIndex/Follow"

	pollInterval = 250 * time.Millisecond
	// maxValidity bounds how long an index is used after the poll, whatever the sidecar says.
	maxValidity = time.Second
	// maxUnanswered bounds the polls that are under way.
	maxUnanswered = 8
	// maxUnasked bounds the beats between two that answer polls: one for each change of the index.
	maxUnasked = 16
	// followTimeout ends a stream whose sidecar is silent, or does not read.
	followTimeout = 3 * time.Second
	// firstFollowBackoff and maxFollowBackoff bound the pause before the stream is opened again.
	firstFollowBackoff = 50 * time.Millisecond
	maxFollowBackoff   = time.Second
	// followLogInterval bounds the log about streams that ended.
	followLogInterval = 10 * time.Second
)

var errSilent = fmt.Errorf("no beat within %s", followTimeout)

// An indexError says that the sidecar's beats cannot be trusted.
type indexError struct{ error }

func unusable(format string, arguments ...any) error {
	return indexError{fmt.Errorf(format, arguments...)}
}

// An indexFollower holds the sidecar's rule index while it is valid. A request outside it needs no call: the sidecar would
// allow it and do nothing else. Without a valid index, every request needs one.
type indexFollower struct {
	client *client
	// Time between two polls.
	interval time.Duration
	held     atomic.Pointer[heldIndex]
	logged   time.Time
}

// A heldIndex is valid from when the poll was sent for which the sidecar has confirmed it.
type heldIndex struct {
	index    *index
	polled   time.Time
	validFor time.Duration
}

func (h *heldIndex) isValid(now time.Time) bool {
	return h.isValidAfter(now.Sub(h.polled), time.Duration(now.UnixNano()-h.polled.UnixNano()))
}

// isValidAfter compares the time since the poll by both clocks of this machine. The monotonic one stands still while the
// machine sleeps, and the other may be set: each may only shorten the validity.
func (h *heldIndex) isValidAfter(monotonic, wall time.Duration) bool {
	return monotonic < h.validFor && wall < h.validFor
}

// need returns what the request needs of that method.
func (f *indexFollower) need(method method, attributes admission.Attributes) need {
	held := f.held.Load()
	if held == nil || !held.isValid(time.Now()) {
		return inJSON
	}
	request := newIndexRequest(attributes)
	switch method {
	case mutate:
		return held.index.mutating.need(&request)
	case validate:
		return held.index.validating.need(&request)
	default:
		return max(held.index.mutating.need(&request), held.index.validating.need(&request))
	}
}

// run follows the index until the context ends, on one stream after another.
func (f *indexFollower) run(ctx context.Context) {
	backoff := firstFollowBackoff
	for {
		followed, err := f.follow(ctx)
		// Nobody confirms what was held.
		f.held.Store(nil)
		if ctx.Err() != nil {
			return
		}
		if followed {
			backoff = firstFollowBackoff
		}
		f.log(err)
		select {
		case <-time.After(backoff + rand.N(backoff/2)):
		case <-ctx.Done():
			return
		}
		backoff = min(2*backoff, maxFollowBackoff)
	}
}

// log reports the end of a stream, now and then. Calls are made meanwhile, so it harms no request.
func (f *indexFollower) log(err error) {
	if time.Since(f.logged) < followLogInterval {
		return
	}
	f.logged = time.Now()
	var lie indexError
	switch {
	case errors.As(err, &lie), status.Code(err) == codes.ResourceExhausted:
		// Also a message that is too long, or too many plugins.
		klog.ErrorS(nil, "Gatepost's rule index is not used: every request is sent", "address", f.client.address, "reason", shorten(err.Error()))
	case status.Code(err) == codes.Unimplemented:
		klog.V(2).InfoS("Gatepost has no rule index: every request is sent", "address", f.client.address)
	default:
		klog.V(2).InfoS("Gatepost's rule index is not followed at present: every request is sent", "address", f.client.address, "reason", shorten(err.Error()))
	}
}

// follow holds the index until its stream ends, for the reason that is returned. It reports whether there was an index.
func (f *indexFollower) follow(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	connection, err := f.client.connected(ctx)
	if err != nil {
		return false, err
	}
	stream, err := connection.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, followMethod, grpc.MaxCallRecvMsgSize(maxIndexBytes))
	if err != nil {
		return false, err
	}
	// It ends the stream also where sending a poll does not.
	silence := time.AfterFunc(followTimeout, func() { cancel(errSilent) })
	defer silence.Stop()
	beats, ended := make(chan *indexBeat), make(chan error, 1)
	go func() {
		for {
			beat := &indexBeat{}
			if err := stream.RecvMsg(beat); err != nil {
				ended <- err
				return
			}
			select {
			case beats <- beat:
			case <-ctx.Done():
				return
			}
		}
	}()
	ticker := time.NewTicker(f.interval)
	defer ticker.Stop()
	session := &indexSession{}
	poll := func() error { return stream.SendMsg(session.poll(time.Now())) }
	err = poll()
	for err == nil {
		select {
		case beat := <-beats:
			silence.Reset(followTimeout)
			var isNew bool
			if isNew, err = session.take(beat); err != nil {
				break
			}
			f.held.Store(session.held)
			if isNew {
				err = poll()
			}
		case <-ticker.C:
			if session.unanswered() < maxUnanswered {
				err = poll()
			}
		case err = <-ended:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	if context.Cause(ctx) == errSilent {
		err = errSilent
	}
	return session.held != nil, err
}

// An indexSession is what one stream has brought.
type indexSession struct {
	// Number of the last poll, and of the last one that was answered.
	last, answered uint64
	// When the last polls were sent, by their number.
	polled [2 * maxUnanswered]time.Time
	// Beats since the last one that answered a poll.
	unasked int
	version uint64
	index   *index
	// nil before the first beat.
	held *heldIndex
}

func (s *indexSession) unanswered() uint64 { return s.last - s.answered }

// poll returns the next poll, which is to be sent after that time. It names what is held.
func (s *indexSession) poll(now time.Time) *indexPoll {
	s.last++
	s.polled[s.last%uint64(len(s.polled))] = now
	return &indexPoll{sequence: s.last, version: s.version}
}

// take holds what the beat confirms, and reports whether that is another index. After an error nothing may be held.
func (s *indexSession) take(beat *indexBeat) (bool, error) {
	switch {
	case beat.malformed != nil:
		return false, unusable("a beat is malformed: %w", beat.malformed)
	case beat.sequence == 0 || beat.sequence > s.last:
		return false, unusable("a beat answers poll %d, and %d were sent", beat.sequence, s.last)
	case beat.sequence < s.answered:
		return false, unusable("a beat answers poll %d, after poll %d", beat.sequence, s.answered)
	case beat.version == 0 || beat.version < s.version:
		return false, unusable("a beat has the index of version %d, after %d", beat.version, s.version)
	case beat.index == nil && (s.index == nil || beat.version != s.version):
		return false, unusable("a beat confirms version %d of the index, which was not sent", beat.version)
	case beat.sequence > s.answered:
		s.unasked = 0
	case s.unasked == maxUnasked:
		return false, unusable("more than %d beats without a poll", maxUnasked)
	default:
		s.unasked++
	}
	s.answered = beat.sequence
	isNew := beat.version != s.version
	if beat.index != nil {
		s.version, s.index = beat.version, beat.index
	}
	s.held = &heldIndex{
		index:    s.index,
		polled:   s.polled[s.answered%uint64(len(s.polled))],
		validFor: min(beat.validFor, maxValidity),
	}
	return isNew, nil
}

// An index holds the rules of both phases.
type index struct{ mutating, validating phaseIndex }

// A phaseIndex holds rules by their group and resource.
type phaseIndex struct {
	all bool
	// Rules of one resource of one group, of one resource of any group, of any resource of one group, and of anything.
	exact      map[groupResource][]indexRule
	byResource map[string][]indexRule
	byGroup    map[string][]indexRule
	anywhere   []indexRule
}

type groupResource struct{ group, resource string }

// An indexRule is the rest of a rule.
type indexRule struct {
	operations operations
	scope      scope
	// nil is any.
	versions []string
	// "" is none, "*" is any.
	subresource string
	// nil is any, and none.
	namespaces map[string]struct{}
	// What a request needs that the rule matches.
	need need
}

// A need is what a rule index says of a request; of two, the greater one counts.
type need uint8

const (
	// noCall: the sidecar would allow the request and do nothing else.
	noCall need = iota
	// inProtobuf: what reads the objects takes them in protobuf too.
	inProtobuf
	// inJSON: something reads the objects in JSON, or may do so.
	inJSON
)

// operations are a set of the four operations.
type operations uint8

// A scope is where a rule matches: in namespaces, outside of them, or both.
type scope uint8

const (
	inNamespaces scope = 1 << iota
	outsideNamespaces
	anyScope = inNamespaces | outsideNamespaces
)

func operation(name string) (operations, bool) {
	at := slices.Index([]string{string(admission.Create), string(admission.Update), string(admission.Delete), string(admission.Connect)}, name)
	return 1 << max(at, 0), at >= 0
}

// An indexRequest is what of a request is compared.
type indexRequest struct {
	operation                                        operations
	scope                                            scope
	group, version, resource, subresource, namespace string
}

func newIndexRequest(attributes admission.Attributes) indexRequest {
	resource := attributes.GetResource()
	request := indexRequest{
		scope:       outsideNamespaces,
		group:       resource.Group,
		version:     resource.Version,
		resource:    resource.Resource,
		subresource: attributes.GetSubresource(),
		namespace:   attributes.GetNamespace(),
	}
	switch attributes.GetOperation() {
	case admission.Create:
		request.operation = 1 << 0
	case admission.Update:
		request.operation = 1 << 1
	case admission.Delete:
		request.operation = 1 << 2
	case admission.Connect:
		request.operation = 1 << 3
	}
	// As rules of webhooks have it: a Namespace is outside of namespaces, although its requests name one.
	isNamespace := request.resource == "namespaces" && request.group == "" && request.version == "v1"
	if request.namespace != "" && !isNamespace {
		request.scope = inNamespaces
	}
	return request
}

// need returns what the request needs.
func (p *phaseIndex) need(request *indexRequest) need {
	// Of an operation that is none of the four nothing is known.
	if p.all || request.operation == 0 {
		return inJSON
	}
	most := needOf(noCall, p.exact[groupResource{request.group, request.resource}], request)
	if len(p.byResource) > 0 {
		most = needOf(most, p.byResource[request.resource], request)
	}
	if len(p.byGroup) > 0 {
		most = needOf(most, p.byGroup[request.group], request)
	}
	return needOf(most, p.anywhere, request)
}

// needOf returns the greatest need of those rules that match the request, and of what is known.
func needOf(known need, rules []indexRule, request *indexRequest) need {
	for n := range rules {
		if known == inJSON {
			break
		}
		if rules[n].need > known && rules[n].matches(request) {
			known = rules[n].need
		}
	}
	return known
}

func (r *indexRule) matches(request *indexRequest) bool {
	if r.operations&request.operation == 0 || r.scope&request.scope == 0 {
		return false
	}
	if r.subresource != request.subresource && r.subresource != "*" {
		return false
	}
	if r.versions != nil && !slices.Contains(r.versions, request.version) {
		return false
	}
	if r.namespaces != nil {
		_, ok := r.namespaces[request.namespace]
		return ok
	}
	return true
}
