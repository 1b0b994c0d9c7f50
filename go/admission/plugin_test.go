package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/component-base/tracing"
)

var (
	pods    = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	podKind = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	ann     = &user.DefaultInfo{Name: "ann", UID: "7", Groups: []string{"team"}, Extra: map[string][]string{"scope": {"a", "b"}}}
	objects = admission.NewObjectInterfacesFromScheme(scheme.Scheme)
)

func pod(name string) *corev1.Pod {
	return &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop"}}
}

func attributes(object, old runtime.Object, operation admission.Operation) admission.Attributes {
	options := map[admission.Operation]runtime.Object{
		admission.Create: &metav1.CreateOptions{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "CreateOptions"}, FieldManager: "test"},
	}[operation]
	return admission.NewAttributesRecord(object, old, podKind, "shop", "a", pods, "", operation, options, true, ann)
}

// A sidecar that answers as the test says, over a unix socket.
type sidecar struct {
	socket string
	answer func(method string, request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error)

	// Serves a stream that follows the rule index; nil if the sidecar has none.
	follow func(stream grpc.ServerStream) error
	// Serve other methods.
	streams map[string]func(stream grpc.ServerStream) error

	mutex    sync.Mutex
	asked    []string
	metadata metadata.MD
}

// Reviews as both sides see them on the wire, and other messages as they are.
type reviews struct{}

type rawMessage []byte

func (reviews) Name() string { return "proto" }
func (reviews) Marshal(value any) (mem.BufferSlice, error) {
	if raw, ok := value.(rawMessage); ok {
		return mem.BufferSlice{mem.SliceBuffer(raw)}, nil
	}
	text, err := value.(*admissionv1.AdmissionReview).Marshal()
	return mem.BufferSlice{mem.SliceBuffer(text)}, err
}
func (reviews) Unmarshal(data mem.BufferSlice, value any) error {
	if raw, ok := value.(*rawMessage); ok {
		*raw = data.Materialize()
		return nil
	}
	return value.(*admissionv1.AdmissionReview).Unmarshal(data.Materialize())
}

var _ encoding.CodecV2 = reviews{}

func allow(_ string, request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	return &admissionv1.AdmissionResponse{UID: request.UID, Allowed: true}, nil
}

func patching(patch string) func(string, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	return func(method string, request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		response, err := allow(method, request)
		if method != string(validate) {
			kind := admissionv1.PatchTypeJSONPatch
			response.Patch, response.PatchType = []byte(patch), &kind
		}
		return response, err
	}
}

func start(t *testing.T, answer func(string, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error)) *sidecar {
	t.Helper()
	s := &sidecar{socket: filepath.Join(t.TempDir(), "s"), answer: answer}
	s.serve(t)
	return s
}

// serve listens at the socket until the function that it returns is called.
func (s *sidecar) serve(t *testing.T) (stop func()) {
	t.Helper()
	listener, err := net.Listen("unix", s.socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.ForceServerCodecV2(reviews{}), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(stream)
		if method == followMethod {
			if s.follow == nil {
				return status.Error(codes.Unimplemented, "no rule index")
			}
			return s.follow(stream)
		}
		if serve := s.streams[method]; serve != nil {
			return serve(stream)
		}
		var review admissionv1.AdmissionReview
		if err := stream.RecvMsg(&review); err != nil {
			return err
		}
		s.mutex.Lock()
		s.asked = append(s.asked, method)
		s.metadata, _ = metadata.FromIncomingContext(stream.Context())
		s.mutex.Unlock()
		response, err := s.answer(method, review.Request)
		if err != nil {
			return err
		}
		return stream.SendMsg(&admissionv1.AdmissionReview{Response: response})
	}))
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return server.Stop
}

func (s *sidecar) calls() []string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return append([]string(nil), s.asked...)
}

// unixAddress is the address of a socket, whose path may be quoted for YAML.
func unixAddress(socket string) string {
	if path, quoted := strings.CutPrefix(socket, "'"); quoted {
		return "'unix://" + path
	}
	return "unix://" + socket
}

func plugin(t testing.TB, socket, more string) *Plugin {
	t.Helper()
	text := "apiVersion: plugin.gatepost.dev/v1\nkind: GatepostConfiguration\naddress: " + unixAddress(socket) + "\n" + more
	configuration, err := readConfiguration(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(configuration)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.client.close)
	return p
}

// sent encodes a request, and reads the message by Kubernetes' own type.
func sent(t *testing.T, attributes admission.Attributes) (*request, *message, *admissionv1.AdmissionRequest) {
	t.Helper()
	request, err := newRequest(attributes, versionOf(attributes), objects)
	if err != nil {
		t.Fatal(err)
	}
	message, err := newMessage(request, false)
	if err != nil {
		t.Fatal(err)
	}
	var review admissionv1.AdmissionReview
	if err := review.Unmarshal(message.buffers().Materialize()); err != nil {
		t.Fatal(err)
	}
	return request, message, review.Request
}

func TestMessageIsReadByKubernetesOwnType(t *testing.T) {
	for name, attributes := range map[string]admission.Attributes{
		"create":  attributes(pod("a"), nil, admission.Create),
		"update":  attributes(pod("a"), pod("a"), admission.Update),
		"delete":  attributes(nil, pod("a"), admission.Delete),
		"connect": admission.NewAttributesRecord(&corev1.PodExecOptions{Command: []string{"sh"}}, nil, corev1.SchemeGroupVersion.WithKind("PodExecOptions"), "shop", "a", pods, "exec", admission.Connect, nil, false, ann),
	} {
		t.Run(name, func(t *testing.T) {
			request, message, got := sent(t, attributes)
			if got.UID != message.uid || got.Name != "a" || got.Namespace != "shop" || got.SubResource != attributes.GetSubresource() ||
				string(got.Operation) != string(attributes.GetOperation()) || got.Kind.Kind != attributes.GetKind().Kind ||
				got.Resource.Resource != "pods" || *got.RequestKind != got.Kind || *got.RequestResource != got.Resource || *got.DryRun != attributes.IsDryRun() {
				t.Errorf("not what was asked: %+v", got)
			}
			if got.UserInfo.Username != "ann" || got.UserInfo.UID != "7" || !reflect.DeepEqual(got.UserInfo.Groups, []string{"team"}) || !reflect.DeepEqual([]string(got.UserInfo.Extra["scope"]), []string{"a", "b"}) {
				t.Errorf("another user: %+v", got.UserInfo)
			}
			for which, pair := range map[string][2]any{"object": {got.Object.Raw, request.object}, "oldObject": {got.OldObject.Raw, request.oldObject}} {
				raw, object := pair[0].([]byte), pair[1]
				if reflect.ValueOf(object).IsValid() != (len(raw) > 0) {
					t.Errorf("%s: %q for %v", which, raw, object)
				}
				if len(raw) == 0 {
					continue
				}
				want, _ := json.Marshal(object)
				if !bytes.Equal(raw, want) {
					t.Errorf("%s: %s, not %s", which, raw, want)
				}
			}
			if options := string(got.Options.Raw); (name == "create") != strings.Contains(options, `"fieldManager":"test"`) {
				t.Errorf("options %q", options)
			}
		})
	}
}

func TestVerdictsReachTheClientAsTheHooksGaveThem(t *testing.T) {
	denial := &metav1.Status{Status: metav1.StatusFailure, Code: 409, Reason: metav1.StatusReasonConflict, Message: `admission webhook "h.x" denied the request: not today`}
	s := start(t, func(_ string, request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		return &admissionv1.AdmissionResponse{UID: request.UID, Result: denial, Warnings: []string{"mind the gap"}, AuditAnnotations: map[string]string{"h.x/why": "so"}}, nil
	})
	warnings := &recorder{}
	ctx := warning.WithWarningRecorder(context.Background(), warnings)
	request := attributes(pod("a"), nil, admission.Create)
	err := plugin(t, s.socket, "").Validate(ctx, request, objects)
	var refused *apierrors.StatusError
	if !errors.As(err, &refused) || !reflect.DeepEqual(refused.ErrStatus, *denial) {
		t.Errorf("refused with %#v", err)
	}
	if !reflect.DeepEqual(warnings.texts, []string{"mind the gap"}) {
		t.Errorf("warnings %v", warnings.texts)
	}
	if got := s.calls(); !reflect.DeepEqual(got, []string{string(validate)}) {
		t.Errorf("called %v", got)
	}
}

func TestTraceAndAuditIdentifierTravelWithTheReview(t *testing.T) {
	s := start(t, allow)
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	ctx := tracing.Propagators().Extract(audit.WithAuditContext(context.Background()), propagation.MapCarrier{"traceparent": parent, "baggage": "tenant=a"})
	audit.WithAuditID(ctx, "id-1")
	if err := plugin(t, s.socket, "").Validate(ctx, attributes(pod("a"), nil, admission.Create), objects); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"traceparent": parent, "baggage": "tenant=a", "audit-id": "id-1"} {
		if got := s.metadata.Get(name); !reflect.DeepEqual(got, []string{want}) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestCallsByOperation(t *testing.T) {
	for operation, want := range map[admission.Operation][]string{
		admission.Create:  {string(mutate), string(validate)},
		admission.Update:  {string(mutate), string(validate)},
		admission.Delete:  {string(review)},
		admission.Connect: {string(review)},
	} {
		s := start(t, allow)
		p := plugin(t, s.socket, "")
		request := attributes(pod("a"), nil, operation)
		if err := errors.Join(p.Admit(context.Background(), request, objects), p.Validate(context.Background(), request, objects)); err != nil {
			t.Errorf("%s: %v", operation, err)
		}
		if got := s.calls(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: called %v", operation, got)
		}
	}
}

// As by webhooks: the server reads the options of an exec once admission is through.
func TestPatchOfAConnectIsApplied(t *testing.T) {
	s := start(t, patching(`[{"op":"add","path":"/container","value":"side"}]`))
	options := &corev1.PodExecOptions{Command: []string{"sh"}}
	request := admission.NewAttributesRecord(options, nil, corev1.SchemeGroupVersion.WithKind("PodExecOptions"), "shop", "a", pods, "exec", admission.Connect, nil, false, ann)
	p := plugin(t, s.socket, "")
	if err := errors.Join(p.Admit(context.Background(), request, objects), p.Validate(context.Background(), request, objects)); err != nil {
		t.Fatal(err)
	}
	if options.Container != "side" {
		t.Errorf("container %q", options.Container)
	}
	if got := s.calls(); !reflect.DeepEqual(got, []string{string(review)}) {
		t.Errorf("called %v", got)
	}
}

func TestPatchIsAppliedAndAsksForASecondRound(t *testing.T) {
	s := start(t, patching(`[{"op":"add","path":"/metadata/labels","value":{"from":"hook"}}]`))
	p := plugin(t, s.socket, "reinvocationPolicy: IfNeeded")
	object := pod("a")
	request := attributes(object, nil, admission.Create)
	if err := p.Admit(context.Background(), request, objects); err != nil {
		t.Fatal(err)
	}
	if object.Labels["from"] != "hook" {
		t.Errorf("labels %v", object.Labels)
	}
	again := request.GetReinvocationContext()
	if !again.ShouldReinvoke() {
		t.Error("no second round is asked for")
	}
	again.SetIsReinvoke()
	if err := p.Admit(context.Background(), request, objects); err != nil || len(s.calls()) != 1 {
		t.Errorf("an unchanged object was sent again: %v, %v", err, s.calls())
	}
	object.Labels["other"] = "plugin"
	if err := p.Admit(context.Background(), request, objects); err != nil || len(s.calls()) != 2 {
		t.Errorf("a changed object was not sent again: %v, %v", err, s.calls())
	}
}

func TestPatchOfACustomResource(t *testing.T) {
	s := start(t, patching(`[{"op":"add","path":"/spec","value":{"size":1}}]`))
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "a"}}}
	crd := custom{objects}
	if err := plugin(t, s.socket, "").Admit(context.Background(), attributes(object, nil, admission.Create), crd); err != nil {
		t.Fatal(err)
	}
	if size, _, _ := unstructured.NestedInt64(object.Object, "spec", "size"); size != 1 {
		t.Errorf("object %v", object.Object)
	}
}

// Whatever a sidecar does, the failure policy decides, in time, and the error names what happened.
func TestSidecarsAtFault(t *testing.T) {
	allowed := func(change func(*admissionv1.AdmissionResponse)) func(string, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		return func(method string, request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
			response, err := allow(method, request)
			change(response)
			return response, err
		}
	}
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	for name, fault := range map[string]struct {
		answer func(string, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error)
		says   string
		// What a hook would be at fault for is an error under Ignore too, as upstream.
		closed bool
	}{
		"another uid": {allowed(func(r *admissionv1.AdmissionResponse) { r.UID = "other" }), `got "other"`, false},
		"no response": {func(string, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) { return nil, nil }, "it has no response", false},
		"unavailable": {func(string, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
			return nil, status.Error(codes.Unavailable, "draining")
		}, "Unavailable: draining", false},
		"no patch type":     {allowed(func(r *admissionv1.AdmissionResponse) { r.Patch = []byte("[]") }), "not a JSONPatch", false},
		"too large":         {allowed(func(r *admissionv1.AdmissionResponse) { r.Warnings = []string{strings.Repeat("x", maxAnswerBytes)} }), "ResourceExhausted", true},
		"undecodable patch": {patching("{"), "undecodable patch", false},
		"no such path":      {patching(`[{"op":"remove","path":"/spec/nothing/here"}]`), "remove operation does not apply", true},
		"another type":      {patching(`[{"op":"add","path":"/spec/containers","value":"none"}]`), "cannot unmarshal", true},
		"silence": {func(string, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
			<-hang
			return nil, nil
		}, "no answer within 200ms", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, fault.answer)
			for _, policy := range []string{"Fail", "Ignore"} {
				err := plugin(t, s.socket, "timeout: 200ms\nfailurePolicy: "+policy+"\n").Admit(context.Background(), attributes(pod("a"), nil, admission.Create), objects)
				if policy == "Ignore" && !fault.closed {
					if err != nil {
						t.Errorf("Ignore: %v", err)
					}
					continue
				}
				if !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), fault.says) {
					t.Errorf("%s: %v", policy, err)
				}
			}
		})
	}
}

func TestNoSidecar(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "none")
	began := time.Now()
	err := plugin(t, socket, "").Validate(context.Background(), attributes(pod("a"), nil, admission.Create), objects)
	if !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), "no connection to Gatepost at unix://"+socket) {
		t.Error(err)
	}
	// Bounded by the time for connecting, far below the timeout of 10 s.
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("took %s", took)
	}
	if err := plugin(t, socket, "failurePolicy: Ignore").Validate(context.Background(), attributes(pod("a"), nil, admission.Create), objects); err != nil {
		t.Error(err)
	}
}

func TestClientThatLeavesIsNoFailOpen(t *testing.T) {
	s := start(t, allow)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := plugin(t, s.socket, "failurePolicy: Ignore").Validate(ctx, attributes(pod("a"), nil, admission.Create), objects)
	if !apierrors.IsTimeout(err) {
		t.Error(err)
	}
}

func TestRequestsThatAreNotSent(t *testing.T) {
	hooks := admission.NewAttributesRecord(&admissionregistrationv1.ValidatingWebhookConfiguration{}, nil, admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingWebhookConfiguration"), "", "a",
		admissionregistrationv1.SchemeGroupVersion.WithResource("validatingwebhookconfigurations"), "", admission.Create, nil, false, ann)
	s := start(t, allow)
	if err := plugin(t, s.socket, "").Validate(context.Background(), hooks, objects); err != nil {
		t.Error(err)
	}
	rules := `rules: [{operations: ["DELETE"], apiGroups: [""], apiVersions: ["*"], resources: ["*"]}]`
	p := plugin(t, s.socket, rules)
	if err := p.Validate(context.Background(), attributes(pod("a"), nil, admission.Create), objects); err != nil || len(s.calls()) != 0 {
		t.Errorf("%v, %v", err, s.calls())
	}
	if err := p.Validate(context.Background(), attributes(nil, pod("a"), admission.Delete), objects); err != nil || len(s.calls()) != 1 {
		t.Errorf("%v, %v", err, s.calls())
	}
}

func TestOrder(t *testing.T) {
	recommended := []string{"A", "ValidatingAdmissionWebhook", "ResourceQuota"}
	if got := Order(recommended); !reflect.DeepEqual(got, []string{"A", "ValidatingAdmissionWebhook", "Gatepost", "ResourceQuota"}) {
		t.Error(got)
	}
	if got := Order([]string{"A"}); !reflect.DeepEqual(got, []string{"A", "Gatepost"}) {
		t.Error(got)
	}
	if recommended[2] != "ResourceQuota" {
		t.Error("the server's slice was changed")
	}
}

func TestConfigurationsThatAreRefused(t *testing.T) {
	head := "apiVersion: plugin.gatepost.dev/v1\nkind: GatepostConfiguration\n"
	for text, says := range map[string]string{
		"address: unix:///s":                              "apiVersion and kind must be",
		head:                                              "address is missing",
		head + "address: unix://s":                        "must be absolute",
		head + "address: 10.0.0.1:9440":                   "needs tls",
		head + "address: unix:///s\ntls: {}":              "a unix socket has none",
		head + "address: https://a:1\ntls: {}":            "write unix:// and a path, or HOST:PORT",
		head + "address: unix:///s\ntimeout: 1m":          "at most 30s",
		head + "address: unix:///s\nfailurePolicy: Maybe": "must be Fail or Ignore",
		head + "address: unix:///s\nadress: x":            "unknown field",
		head + "address: unix:///s\nmaxHolds: -1":         "maxHolds -1 must be more than 0",
		head + "address: unix:///s\nrules: [{}]":          "rules[0]: operations is missing",
		head + "address: a:1\ntls: {certFile: /a}":        "go together",
	} {
		if _, err := readConfiguration(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := readConfiguration(nil); err == nil {
		t.Error("no configuration is refused")
	}
}

type recorder struct{ texts []string }

func (r *recorder) AddWarning(_, text string) { r.texts = append(r.texts, text) }

// The interfaces of a custom resource, which has no defaults and needs no conversion.
type custom struct{ admission.ObjectInterfaces }

func (custom) GetObjectDefaulter() runtime.ObjectDefaulter { return nothing{} }
func (custom) GetObjectConvertor() runtime.ObjectConvertor { return nothing{} }

type nothing struct{ runtime.ObjectConvertor }

func (nothing) Default(runtime.Object) {}
func (nothing) Convert(in, out, _ any) error {
	out.(*unstructured.Unstructured).Object = in.(*unstructured.Unstructured).Object
	return nil
}
