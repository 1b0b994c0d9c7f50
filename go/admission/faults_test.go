package admission

import (
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Attempts of a client to have its request judged by nobody, where calls that fail are let past.

func deny(_ string, request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	return &admissionv1.AdmissionResponse{UID: request.UID, Patch: []byte("[]")}, nil
}

func TestAuditIdentifierOfAClientOpensNothing(t *testing.T) {
	s := start(t, deny)
	p := plugin(t, s.socket, "failurePolicy: Ignore")
	for _, id := range []string{"é", "a\tb", "\xff", "a b"} {
		ctx := audit.WithAuditContext(context.Background())
		audit.WithAuditID(ctx, types.UID(id))
		if err := p.Validate(ctx, attributes(pod("a"), nil, admission.Create), objects); err == nil {
			t.Errorf("%q: admitted", id)
		}
	}
	if len(s.calls()) != 4 {
		t.Errorf("called %v", s.calls())
	}
}

func TestTextThatIsNoUTF8IsSentAsAWebhookWouldGetIt(t *testing.T) {
	odd := &user.DefaultInfo{Name: "ann\xff\xfe", Groups: []string{"\xff"}, Extra: map[string][]string{"\xff": {"\xff"}}}
	attributes := admission.NewAttributesRecord(pod("a"), nil, podKind, "shop", "a\xff", pods, "", admission.Create, nil, false, odd)
	_, _, got := sent(t, attributes)
	if got.Name != "a\uFFFD" || got.UserInfo.Username != "ann\uFFFD\uFFFD" || got.UserInfo.Groups[0] != "\uFFFD" || got.UserInfo.Extra["\uFFFD"][0] != "\uFFFD" {
		t.Errorf("%q, %+v", got.Name, got.UserInfo)
	}
}

func TestRequestsThatGatepostCannotReadAreOpenedByNobody(t *testing.T) {
	for code, opens := range map[codes.Code]bool{
		codes.InvalidArgument: false, codes.FailedPrecondition: false, codes.Unimplemented: false, codes.Internal: false,
		codes.ResourceExhausted: false, codes.Unavailable: true, codes.Aborted: true, codes.Unknown: true, codes.DeadlineExceeded: true,
	} {
		s := start(t, func(string, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
			return nil, status.Error(code, "because")
		})
		err := plugin(t, s.socket, "failurePolicy: Ignore").Validate(context.Background(), attributes(pod("a"), nil, admission.Create), objects)
		if (err == nil) != opens {
			t.Errorf("%s: %v", code, err)
		}
		err = plugin(t, s.socket, "").Validate(context.Background(), attributes(pod("a"), nil, admission.Create), objects)
		if !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), "because") {
			t.Errorf("%s: %v", code, err)
		}
	}
}

func TestFailOpenIsInTheAuditLog(t *testing.T) {
	request := &noted{Attributes: attributes(pod("a"), nil, admission.Create)}
	p := plugin(t, filepath.Join(t.TempDir(), "none"), "failurePolicy: Ignore")
	if err := p.Validate(context.Background(), request, objects); err != nil {
		t.Fatal(err)
	}
	if said := request.annotations["failed-open.plugin.gatepost.dev/Validate"]; !strings.Contains(said, "no connection") {
		t.Errorf("annotations %v", request.annotations)
	}
}

func TestDenialWithAnUnusablePatchIsADenial(t *testing.T) {
	s := start(t, deny)
	if err := plugin(t, s.socket, "failurePolicy: Ignore").Validate(context.Background(), attributes(pod("a"), nil, admission.Create), objects); err == nil {
		t.Error("admitted")
	}
}

func TestRulesMatchEveryVersionOfAResource(t *testing.T) {
	s := start(t, deny)
	mapper := runtime.NewEquivalentResourceRegistry()
	kind := schema.GroupVersionKind{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"}
	resource := schema.GroupVersionResource{Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"}
	mapper.RegisterKindFor(resource, "", kind)
	mapper.RegisterKindFor(schema.GroupVersionResource{Group: "autoscaling", Version: "v1", Resource: "horizontalpodautoscalers"}, "", schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: kind.Kind})
	object, err := objects.GetObjectCreater().New(kind)
	if err != nil {
		t.Fatal(err)
	}
	request := admission.NewAttributesRecord(object, nil, kind, "shop", "a", resource, "", admission.Create, nil, false, ann)
	p := plugin(t, s.socket, `rules: [{operations: ["*"], apiGroups: ["autoscaling"], apiVersions: ["v1"], resources: ["*"]}]`)
	if err := p.Validate(context.Background(), request, equivalent{objects, mapper}); err == nil {
		t.Error("the same resource in another version was not sent")
	}
}

// The server's own type may fill in more than the patch did; that is no change by somebody else.
func TestSecondRoundIgnoresWhatConversionFillsIn(t *testing.T) {
	for policy, changedCalls := range map[string]int{"IfNeeded": 2, "Never": 1} {
		s := start(t, patching(`[{"op":"add","path":"/spec/serviceAccountName","value":"x"}]`))
		p := plugin(t, s.socket, "reinvocationPolicy: "+policy)
		object := pod("a")
		request := attributes(object, nil, admission.Create)
		if err := p.Admit(context.Background(), request, filling{objects}); err != nil {
			t.Fatal(err)
		}
		request.GetReinvocationContext().SetIsReinvoke()
		if err := p.Admit(context.Background(), request, filling{objects}); err != nil || len(s.calls()) != 1 {
			t.Errorf("%s: nobody changed the object, but: %v, %v", policy, err, s.calls())
		}
		object.Labels = map[string]string{"other": "plugin"}
		if err := p.Admit(context.Background(), request, filling{objects}); err != nil || len(s.calls()) != changedCalls {
			t.Errorf("%s: the object was changed: %v, %v", policy, err, s.calls())
		}
	}
}

func TestPatchOfTooManyOperations(t *testing.T) {
	one := `{"op":"add","path":"/metadata/labels","value":{}}`
	s := start(t, patching("["+one+strings.Repeat(","+one, maxPatchOperations)+"]"))
	err := plugin(t, s.socket, "").Admit(context.Background(), attributes(pod("a"), nil, admission.Create), objects)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("more than %d", maxPatchOperations)) {
		t.Error(err)
	}
}

func TestLongWordsOfASidecarAreCut(t *testing.T) {
	s := start(t, func(string, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		return &admissionv1.AdmissionResponse{UID: types.UID(strings.Repeat("x", 1<<20))}, nil
	})
	err := plugin(t, s.socket, "").Validate(context.Background(), attributes(pod("a"), nil, admission.Create), objects)
	if err == nil || len(err.Error()) > 2*maxErrorText {
		t.Errorf("%d bytes", len(err.Error()))
	}
}

// delayed passes connection n on to a socket after delay(n); never if that is negative.
func delayed(t *testing.T, to string, delay func(n int) time.Duration) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "d")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for n := 0; ; n++ {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
			if wait := delay(n); wait >= 0 {
				time.AfterFunc(wait, func() {
					if up, err := net.Dial("unix", to); err == nil {
						go func() { _, _ = io.Copy(up, conn); _ = up.Close() }()
						_, _ = io.Copy(conn, up)
					}
					_ = conn.Close()
				})
			}
		}
	}()
	return path
}

func TestCallTakesTheFirstConnectionThatIsReady(t *testing.T) {
	s := start(t, allow)
	path := delayed(t, s.socket, func(n int) time.Duration {
		if n == 0 {
			return -1
		}
		return 0
	})
	p := plugin(t, path, "")
	if len(p.client.connections) < 2 {
		t.Skip("one core: there is one connection")
	}
	for range len(p.client.connections) {
		if err := p.Validate(context.Background(), attributes(pod("a"), nil, admission.Create), objects); err != nil {
			t.Error(err)
		}
	}
}

// Longer than a call waits, but it must not begin anew each time.
func TestSidecarThatIsSlowToAcceptIsReached(t *testing.T) {
	s := start(t, allow)
	p := plugin(t, delayed(t, s.socket, func(int) time.Duration { return 2 * connectWithin }), "")
	var err error
	for range 20 {
		if err = p.Validate(context.Background(), attributes(pod("a"), nil, admission.Create), objects); err == nil {
			return
		}
	}
	t.Error(err)
}

func TestSocketPathIsNoURL(t *testing.T) {
	for _, name := range []string{"a#b", "a?b", "a%41"} {
		socket := filepath.Join(t.TempDir(), name)
		listener, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		plugin(t, "'"+socket+"'", "")
		_ = listener.(*net.UnixListener).SetDeadline(time.Now().Add(10 * time.Second))
		if conn, err := listener.Accept(); err != nil {
			t.Errorf("%s: %v", name, err)
		} else {
			_ = conn.Close()
		}
		_ = listener.Close()
	}
}

type equivalent struct {
	admission.ObjectInterfaces
	mapper runtime.EquivalentResourceMapper
}

func (e equivalent) GetEquivalentResourceMapper() runtime.EquivalentResourceMapper { return e.mapper }

// A type of the server with one field that its version for clients has twice, as core.PodSpec.ServiceAccountName.
type filling struct{ admission.ObjectInterfaces }

func (filling) GetObjectConvertor() runtime.ObjectConvertor { return fillingConvertor{} }

type fillingConvertor struct{ runtime.ObjectConvertor }

func (fillingConvertor) Convert(in, out, _ any) error {
	from, to := in.(*corev1.Pod), out.(*corev1.Pod)
	from.DeepCopyInto(to)
	to.Spec.DeprecatedServiceAccount = to.Spec.ServiceAccountName
	return nil
}

// Calls share a connection, and with it reads and writes of the sidecar, until it carries enough.
func TestCallsShareAConnectionUntilItIsFull(t *testing.T) {
	var all []*connection
	s := start(t, allow)
	p := plugin(t, s.socket, "")
	for len(p.client.connections) < 3 {
		dialled, err := p.client.dial()
		if err != nil {
			t.Fatal(err)
		}
		p.client.connections = append(p.client.connections, &connection{ClientConn: dialled})
		go p.client.keep(t.Context(), dialled)
	}
	for _, connection := range p.client.connections {
		for state := connection.GetState(); state != connectivity.Ready; state = connection.GetState() {
			if !connection.WaitForStateChange(t.Context(), state) {
				t.Fatal("not connected")
			}
		}
		all = append(all, connection)
	}
	for _, one := range []struct {
		loads [3]int64
		want  int
	}{{[3]int64{}, 0}, {[3]int64{fullLoad - 1, 0, 0}, 0}, {[3]int64{fullLoad, 7, 0}, 1}, {[3]int64{fullLoad, fullLoad, 0}, 2}, {[3]int64{fullLoad + 2, fullLoad + 1, fullLoad + 3}, 1}} {
		for n, load := range one.loads {
			all[n].load.Store(load)
		}
		if connection, err := p.client.connected(t.Context()); err != nil || connection != all[one.want] {
			t.Errorf("%v: %v", one.loads, err)
		}
		for _, connection := range all {
			connection.load.Store(0)
		}
	}
	if err := p.Validate(context.Background(), attributes(pod("a"), nil, admission.Create), objects); err != nil {
		t.Error(err)
	}
	for n, connection := range all {
		if load := connection.load.Load(); load != 0 {
			t.Errorf("%d carries %d after its calls", n, load)
		}
	}
}
