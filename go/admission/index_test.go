package admission

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
)

// nested appends a field with bytes, which are texts or messages.
func nested[T ~string | ~[]byte](to []byte, number protowire.Number, fields ...T) []byte {
	for _, field := range fields {
		to = protowire.AppendBytes(protowire.AppendTag(to, number, protowire.BytesType), []byte(field))
	}
	return to
}

func number(to []byte, number protowire.Number, value uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(to, number, protowire.VarintType), value)
}

// ruleMessage is a gatepost.v1.IndexRule: OPERATIONS|GROUPS|VERSIONS|RESOURCES|SCOPE|NAMESPACES, each joined by commas, and
// |protobuf if objects may be in protobuf.
func ruleMessage(text string) []byte {
	var message []byte
	text, takesProtobuf := strings.CutSuffix(text, "|protobuf")
	if takesProtobuf {
		message = number(message, fieldProtobufObjects, 1)
	}
	for n, part := range strings.Split(text, "|") {
		if n < 5 || part != "" {
			message = nested(message, protowire.Number(n+1), strings.Split(part, ",")...)
		}
	}
	return message
}

func phaseMessage(rules ...string) []byte {
	var message []byte
	for _, rule := range rules {
		message = nested(message, fieldPhaseRule, ruleMessage(rule))
	}
	return message
}

func indexMessage(mutating, validating []byte) []byte {
	return nested(nested(nil, fieldMutating, mutating), fieldValidating, validating)
}

func beatMessage(sequence, version, validFor uint64, index []byte) []byte {
	message := number(number(number(nil, fieldSequence, sequence), fieldVersion, version), fieldValidFor, validFor)
	if index != nil {
		message = nested(message, fieldRules, index)
	}
	return message
}

const (
	podsRule       = "CREATE,UPDATE||v1|pods,pods/status|*|"
	configMapsRule = "DELETE||*|configmaps|Namespaced|"
)

// An indexScript is the index that a sidecar sends.
type indexScript struct {
	mutex    sync.Mutex
	index    []byte
	version  uint64
	validFor uint64
	// The sidecar answers no poll.
	silent bool
	// Polls that have come, on all streams.
	polls   []indexPoll
	streams int
	stream  grpc.ServerStream
}

func (s *indexScript) follow(stream grpc.ServerStream) error {
	s.mutex.Lock()
	s.streams++
	s.stream = stream
	s.mutex.Unlock()
	for {
		var raw rawMessage
		if err := stream.RecvMsg(&raw); err != nil {
			return err
		}
		var poll indexPoll
		_ = eachField(raw, func(number protowire.Number, value uint64, _ []byte) error {
			if number == fieldSequence {
				poll.sequence = value
			} else {
				poll.version = value
			}
			return nil
		})
		s.mutex.Lock()
		s.polls = append(s.polls, poll)
		s.answer(poll)
		s.mutex.Unlock()
	}
}

func (s *indexScript) answer(poll indexPoll) {
	if s.silent {
		return
	}
	index := s.index
	if poll.version == s.version {
		index = nil
	}
	_ = s.stream.SendMsg(rawMessage(beatMessage(poll.sequence, s.version, s.validFor, index)))
}

// set changes the script; as Gatepost does, it sends a new index at once.
func (s *indexScript) set(change func()) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	version := s.version
	change()
	if s.version != version && len(s.polls) > 0 {
		s.answer(s.polls[len(s.polls)-1])
	}
}

func (s *indexScript) acknowledged(version uint64) func() bool {
	return func() bool {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		return slices.ContainsFunc(s.polls, func(poll indexPoll) bool { return poll.version == version })
	}
}

// eventually waits for a condition, for longer than any time of the follower.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// indexed starts a sidecar that denies everything it is asked about, and whose index has that content.
func indexed(t *testing.T, mutating, validating []byte) (*sidecar, *indexScript) {
	t.Helper()
	script := &indexScript{index: indexMessage(mutating, validating), version: 1, validFor: 1000}
	s := &sidecar{socket: filepath.Join(t.TempDir(), "s"), answer: deny, follow: script.follow}
	s.serve(t)
	return s, script
}

func configMap(operation admission.Operation) admission.Attributes {
	resource, kind := corev1.SchemeGroupVersion.WithResource("configmaps"), corev1.SchemeGroupVersion.WithKind("ConfigMap")
	return admission.NewAttributesRecord(&corev1.ConfigMap{}, &corev1.ConfigMap{}, kind, "shop", "a", resource, "", operation, nil, false, ann)
}

// isAsked reports whether a sidecar that denies everything is asked about the request.
func isAsked(p *Plugin, request admission.Attributes) bool {
	return p.Validate(context.Background(), request, objects) != nil
}

func TestRequestOutsideTheIndexMakesNoCall(t *testing.T) {
	s, script := indexed(t, phaseMessage(configMapsRule), phaseMessage(podsRule))
	p := plugin(t, s.socket, "")
	eventually(t, "the index is followed", script.acknowledged(1))
	if isAsked(p, configMap(admission.Create)) || isAsked(p, configMap(admission.Update)) {
		t.Error("asked about a request that no rule matches")
	}
	if err := p.Admit(context.Background(), attributes(pod("a"), nil, admission.Create), objects); err != nil {
		t.Errorf("asked in a phase without a rule for it: %v", err)
	}
	if calls := s.calls(); len(calls) > 0 {
		t.Fatalf("calls %v", calls)
	}
	if !isAsked(p, attributes(pod("a"), nil, admission.Create)) || !isAsked(p, attributes(pod("a"), pod("a"), admission.Update)) {
		t.Error("not asked about a request that a rule matches")
	}
	if !isAsked(p, configMap(admission.Delete)) {
		t.Error("not asked about a DELETE that a rule of the mutating phase matches")
	}
}

func TestRequestsAreSentWithoutAnIndex(t *testing.T) {
	s := start(t, deny)
	if !isAsked(plugin(t, s.socket, ""), configMap(admission.Create)) {
		t.Error("not asked although the sidecar has no index")
	}
}

func TestIndexOfEverythingSendsEverything(t *testing.T) {
	s, script := indexed(t, number(nil, fieldAll, 1), phaseMessage())
	p := plugin(t, s.socket, "")
	eventually(t, "the index is followed", script.acknowledged(1))
	if isAsked(p, configMap(admission.Create)) {
		t.Error("asked in the phase without rules")
	}
	if p.Admit(context.Background(), configMap(admission.Create), objects) == nil || !isAsked(p, configMap(admission.Delete)) {
		t.Error("not asked in the phase with all requests")
	}
}

func TestLapsedIndexSendsEverything(t *testing.T) {
	s, script := indexed(t, phaseMessage(), phaseMessage())
	p := plugin(t, s.socket, "")
	eventually(t, "the index is followed", script.acknowledged(1))
	script.set(func() { script.silent = true })
	eventually(t, "a request is sent once the index has lapsed", func() bool { return isAsked(p, configMap(admission.Create)) })
	// No stream was needed for that, nor the end of the first.
	if script.streams != 1 {
		t.Errorf("%d streams", script.streams)
	}
	script.set(func() { script.silent = false })
	eventually(t, "the index is valid again", func() bool { return !isAsked(p, configMap(admission.Create)) })
}

func TestIndexWithoutValiditySendsEverything(t *testing.T) {
	s, script := indexed(t, phaseMessage(), phaseMessage())
	script.validFor = 0
	p := plugin(t, s.socket, "")
	eventually(t, "the index is acknowledged", script.acknowledged(1))
	if !isAsked(p, configMap(admission.Create)) {
		t.Error("not asked")
	}
}

func TestIndexIsValidByBothClocks(t *testing.T) {
	held := &heldIndex{validFor: time.Second}
	const short, long = 999 * time.Millisecond, time.Second
	for _, one := range []struct {
		monotonic, wall time.Duration
		valid           bool
		what            string
	}{
		{short, short, true, "both are young"}, {long, short, false, "the wall clock was set back"},
		{short, long, false, "the machine slept"}, {short, -time.Hour, true, "the wall clock was set back while it is young"},
	} {
		if held.isValidAfter(one.monotonic, one.wall) != one.valid {
			t.Errorf("%s: not %v", one.what, one.valid)
		}
	}
	polled := time.Now()
	held.polled = polled
	if !held.isValid(polled.Add(short)) || held.isValid(polled.Add(long)) {
		t.Error("it is valid for a second after the poll")
	}
}

// Without another poll than the first and the acknowledgements, as the interval is an hour.
func TestNewIndexIsAcknowledgedAtOnce(t *testing.T) {
	s, script := indexed(t, phaseMessage(), phaseMessage())
	client, err := newClient(&Configuration{Address: unixAddress(s.socket)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.close)
	f := &indexFollower{client: client, interval: time.Hour}
	go f.run(client.lifetime)
	eventually(t, "the first index is acknowledged", script.acknowledged(1))
	if f.need(validate, attributes(pod("a"), nil, admission.Create)) != noCall {
		t.Error("acknowledged before it is used")
	}
	script.set(func() { script.version, script.index = 2, indexMessage(phaseMessage(), phaseMessage(podsRule)) })
	eventually(t, "the second index is acknowledged", script.acknowledged(2))
	if f.need(validate, attributes(pod("a"), nil, admission.Create)) == noCall {
		t.Error("acknowledged before it is used")
	}
}

func TestIndexIsFollowedAgainAfterARestart(t *testing.T) {
	script := &indexScript{index: indexMessage(phaseMessage(), phaseMessage()), version: 7, validFor: 1000}
	s := &sidecar{socket: filepath.Join(t.TempDir(), "s"), answer: deny, follow: script.follow}
	stop := s.serve(t)
	p := plugin(t, s.socket, "")
	eventually(t, "the index is followed", script.acknowledged(7))
	stop()
	eventually(t, "a request fails without a sidecar", func() bool { return isAsked(p, configMap(admission.Create)) })
	// Another process counts from 1.
	script.set(func() { script.version, script.polls, script.silent = 1, nil, true })
	s.serve(t)
	eventually(t, "the index is asked for again", func() bool {
		script.mutex.Lock()
		defer script.mutex.Unlock()
		return len(script.polls) > 0
	})
	before := len(s.calls())
	if !isAsked(p, configMap(admission.Create)) || len(s.calls()) == before {
		t.Error("not asked before the new sidecar has sent its index")
	}
	script.mutex.Lock()
	if version := script.polls[0].version; version != 0 {
		t.Errorf("the new sidecar is told of version %d", version)
	}
	script.mutex.Unlock()
	script.set(func() { script.silent = false })
	eventually(t, "no request is sent any more", func() bool { return !isAsked(p, configMap(admission.Create)) })
}

// A stream in which the plugin has sent two polls, and holds version 5 for the first.
func session(t *testing.T) *indexSession {
	t.Helper()
	s := &indexSession{}
	s.poll(time.Now())
	if isNew, err := s.take(&indexBeat{sequence: 1, version: 5, validFor: time.Second, index: &index{}}); err != nil || !isNew {
		t.Fatal(isNew, err)
	}
	s.poll(time.Now())
	return s
}

func TestBeatsThatCannotBeTrustedEndTheStream(t *testing.T) {
	good := &index{}
	for what, beat := range map[string]*indexBeat{
		"an answer to no poll":            {sequence: 0, version: 5},
		"an answer to a poll never sent":  {sequence: 3, version: 5},
		"an older version":                {sequence: 2, version: 4, index: good},
		"no version":                      {sequence: 2},
		"a version that was not sent":     {sequence: 2, version: 6},
		"no version, although with rules": {sequence: 2, index: good},
		"what cannot be read":             {sequence: 2, version: 5, malformed: errNoRule},
	} {
		if _, err := session(t).take(beat); err == nil {
			t.Errorf("%s is taken", what)
		}
	}
	backwards := session(t)
	if _, err := backwards.take(&indexBeat{sequence: 2, version: 5}); err != nil {
		t.Error(err)
	}
	if _, err := backwards.take(&indexBeat{sequence: 1, version: 5}); err == nil {
		t.Error("an answer to an earlier poll is taken")
	}
	flood, count := session(t), 0
	for ; count < 100; count++ {
		if _, err := flood.take(&indexBeat{sequence: 1, version: uint64(6 + count), index: good}); err != nil {
			break
		}
	}
	if count != maxUnasked {
		t.Errorf("%d beats without a poll are taken", count)
	}
}

func TestBeatCountsFromItsPollAndForASecondAtMost(t *testing.T) {
	s, began := &indexSession{}, time.Now()
	for n := range 3 {
		s.poll(began.Add(time.Duration(n) * time.Millisecond))
	}
	if _, err := s.take(&indexBeat{sequence: 2, version: 1, validFor: time.Hour, index: &index{}}); err != nil {
		t.Fatal(err)
	}
	if held := s.held; held.polled != began.Add(time.Millisecond) || held.validFor != maxValidity || s.unanswered() != 1 {
		t.Errorf("%+v", held)
	}
}

func TestMalformedIndexIsNone(t *testing.T) {
	many := strings.TrimSuffix(strings.Repeat("x,", 1<<12), ",")
	for what, message := range map[string][]byte{
		"no rules":             beatMessage(1, 1, 1000, []byte{}),
		"one phase":            beatMessage(1, 1, 1000, nested(nil, fieldMutating, phaseMessage())),
		"a phase twice":        beatMessage(1, 1, 1000, nested(nil, fieldMutating, phaseMessage(), phaseMessage())),
		"a phase as a number":  beatMessage(1, 1, 1000, number(number(nil, fieldMutating, 1), fieldValidating, 1)),
		"half a message":       beatMessage(1, 1, 1000, indexMessage(phaseMessage(), phaseMessage(podsRule)))[:20],
		"a group of no end":    {0x0b},
		"an unknown operation": beatMessage(1, 1, 1000, indexMessage(phaseMessage(), phaseMessage("PATCH||v1|pods|*|"))),
		"an unknown scope":     beatMessage(1, 1, 1000, indexMessage(phaseMessage(), phaseMessage("CREATE||v1|pods|Some|"))),
		"no resource":          beatMessage(1, 1, 1000, indexMessage(phaseMessage(), nested(nil, fieldPhaseRule, nested(nil, fieldOperations, "CREATE")))),
		"too many rules":       beatMessage(1, 1, 1000, indexMessage(phaseMessage(), phaseMessage("CREATE|"+many+"|v1|"+many+"|*|"))),
		"too many in several":  beatMessage(1, 1, 1000, indexMessage(phaseMessage(), phaseMessage("CREATE|a,b|v1|"+many+"|*|", "CREATE|c|v1|x|*|"))),
	} {
		beat := &indexBeat{}
		if err := beat.unmarshal(message); err == nil {
			t.Errorf("%s: read as %+v", what, beat.index)
		}
	}
	// A field of a later version.
	later := number(beatMessage(1, 2, 3, indexMessage(phaseMessage(), phaseMessage())), 99, 1)
	if beat := (&indexBeat{}); beat.unmarshal(later) != nil || beat.sequence != 1 || beat.version != 2 || beat.validFor != 3*time.Millisecond || beat.index == nil {
		t.Errorf("%+v", beat)
	}
}

// Whatever a sidecar sends, requests are sent to it, and nothing of its messages is kept.
func TestSidecarThatLiesIsAsked(t *testing.T) {
	empty := indexMessage(phaseMessage(), phaseMessage())
	for what, message := range map[string][]byte{
		"garbage":        []byte("\xff\xff\xff"),
		"no such poll":   beatMessage(1<<60, 1, 1000, empty),
		"too long":       beatMessage(1, 1, 1000, nested(empty, 99, strings.Repeat("x", maxIndexBytes))),
		"not sent":       beatMessage(1, 1, 1000, nil),
		"half an index":  beatMessage(1, 1, 1000, nested(nil, fieldMutating, phaseMessage())),
		"nothing at all": {},
	} {
		t.Run(what, func(t *testing.T) {
			ended := make(chan struct{}, 64)
			s := &sidecar{socket: filepath.Join(t.TempDir(), "s"), answer: deny, follow: func(stream grpc.ServerStream) error {
				var raw rawMessage
				err := stream.RecvMsg(&raw)
				for err == nil {
					_ = stream.SendMsg(rawMessage(message))
					err = stream.RecvMsg(&raw)
				}
				ended <- struct{}{}
				return err
			}}
			s.serve(t)
			p := plugin(t, s.socket, "")
			select {
			case <-ended:
			case <-time.After(20 * time.Second):
				t.Fatal("the stream goes on")
			}
			if p.index.held.Load() != nil || !isAsked(p, configMap(admission.Create)) {
				t.Error("not asked")
			}
		})
	}
}

func readPhase(t testing.TB, rules ...string) *phaseIndex {
	t.Helper()
	phase := &phaseIndex{}
	if err := phase.read(phaseMessage(rules...)); err != nil {
		t.Fatal(err)
	}
	return phase
}

// upstream is the rule as kube-apiserver has it.
func upstream(text string) admissionregistrationv1.RuleWithOperations {
	parts := strings.Split(text, "|")
	list := func(n int) []string { return strings.Split(parts[n], ",") }
	rule := admissionregistrationv1.RuleWithOperations{}
	for _, operation := range list(0) {
		rule.Operations = append(rule.Operations, admissionregistrationv1.OperationType(operation))
	}
	scope := admissionregistrationv1.ScopeType(parts[4])
	rule.APIGroups, rule.APIVersions, rule.Resources, rule.Scope = list(1), list(2), list(3), &scope
	return rule
}

func TestIndexMatchesAsUpstreamDoes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	some := func(words ...string) string {
		var list []string
		for range 1 + random.IntN(3) {
			list = append(list, words[random.IntN(len(words))])
		}
		return strings.Join(list, ",")
	}
	one := func(words ...string) string { return words[random.IntN(len(words))] }
	matched := 0
	for range 20_000 {
		var texts []string
		for range random.IntN(4) {
			texts = append(texts, strings.Join([]string{
				some("CREATE", "UPDATE", "DELETE", "CONNECT"), some("", "apps", "*"), some("v1", "v2", "*"),
				some("pods", "*", "pods/*", "*/status", "*/*", "namespaces", "pods/", "namespaces/status"), one("*", "Cluster", "Namespaced"), "",
			}, "|"))
		}
		resource := schema.GroupVersionResource{Group: one("", "apps", "x"), Version: one("v1", "v2", "v3"), Resource: one("pods", "namespaces", "nodes")}
		request := admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{}, one("", "shop"), "a", resource, one("", "status", "scale"), admission.Operation(one("CREATE", "UPDATE", "DELETE", "CONNECT")), nil, false, nil)
		want := slices.ContainsFunc(texts, func(text string) bool {
			matcher := rules.Matcher{Rule: upstream(text), Attr: request}
			return matcher.Matches()
		})
		compared := newIndexRequest(request)
		if got := readPhase(t, texts...).need(&compared) != noCall; got != want {
			t.Fatalf("%v of %s %v %q in %q: %v", texts, request.GetOperation(), resource, request.GetSubresource(), request.GetNamespace(), got)
		}
		if want {
			matched++
		}
	}
	if matched < 2000 {
		t.Errorf("%d of all match", matched)
	}
}

func TestIndexRulesOfNamespaces(t *testing.T) {
	phase := readPhase(t, "CREATE|*|*|*/*|Namespaced|kube-system,infra")
	for namespace, want := range map[string]bool{"kube-system": true, "infra": true, "shop": false, "": false} {
		request := newIndexRequest(admission.NewAttributesRecord(nil, nil, podKind, namespace, "a", pods, "", admission.Create, nil, false, nil))
		if (phase.need(&request) != noCall) != want {
			t.Errorf("%q: not %v", namespace, want)
		}
	}
}

func TestRequestOfAnUnknownOperationIsSent(t *testing.T) {
	request := newIndexRequest(admission.NewAttributesRecord(nil, nil, podKind, "shop", "a", pods, "", admission.Operation("PATCH"), nil, false, nil))
	if readPhase(t).need(&request) != inJSON {
		t.Error("not sent")
	}
}

// followed is a follower that holds an index with rules of many resources.
func followed(t testing.TB) *indexFollower {
	texts := []string{podsRule, "CREATE|*|*|*/scale|*|"}
	for n := range 500 {
		texts = append(texts, fmt.Sprintf("CREATE,UPDATE|g%d.example.com|v1,v2|things,others|*|", n))
	}
	f := &indexFollower{}
	f.held.Store(&heldIndex{index: &index{validating: *readPhase(t, texts...)}, polled: time.Now(), validFor: time.Hour})
	return f
}

var lease = admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{}, "kube-node-lease", "a",
	schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}, "", admission.Update, nil, false, ann)

func TestLookUpAllocatesNothing(t *testing.T) {
	f := followed(t)
	if count := testing.AllocsPerRun(100, func() {
		if f.need(validate, lease) != noCall {
			t.Fatal("a hit")
		}
	}); count > 0 {
		t.Errorf("%v allocations", count)
	}
}

func BenchmarkIndexMiss(b *testing.B) {
	f := followed(b)
	b.ReportAllocs()
	for b.Loop() {
		if f.need(validate, lease) != noCall {
			b.Fatal("a hit")
		}
	}
}

// BenchmarkInTreeMatcherOfOneWebhook is what k8s.io/apiserver does to find out that a request does not match one webhook with
// one rule: see ShouldCallHook in pkg/admission/plugin/webhook/generic/webhook.go. Its selectors are left out.
func BenchmarkInTreeMatcherOfOneWebhook(b *testing.B) {
	mapper := runtime.NewEquivalentResourceRegistry()
	for _, version := range []string{"v1", "v1beta1"} {
		resource := lease.GetResource()
		resource.Version = version
		mapper.RegisterKindFor(resource, "", resource.GroupVersion().WithKind("Lease"))
	}
	webhook := []admissionregistrationv1.RuleWithOperations{upstream(podsRule)}
	matches := func(attributes admission.Attributes) bool {
		for _, rule := range webhook {
			if matcher := (rules.Matcher{Rule: rule, Attr: attributes}); matcher.Matches() {
				return true
			}
		}
		override := &inResource{Attributes: attributes}
		equivalents := mapper.EquivalentResourcesFor(attributes.GetResource(), attributes.GetSubresource())
		for _, rule := range webhook {
			for _, equivalent := range equivalents {
				if equivalent == attributes.GetResource() {
					continue
				}
				override.resource = equivalent
				if matcher := (rules.Matcher{Rule: rule, Attr: override}); matcher.Matches() {
					return true
				}
			}
		}
		return false
	}
	b.ReportAllocs()
	for b.Loop() {
		if matches(lease) {
			b.Fatal("a match")
		}
	}
}
