package admission

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

const twoPending = `{"pending":[{"name":"one.example.com"},{"name":"two.example.com"}],"creator":{"username":"ann","uid":"7","groups":["team"],"extra":{"scope":["a"]}}}`

func unfinishedPod(list string) *corev1.Pod {
	made := pod("a")
	made.UID, made.ResourceVersion = "u", "5"
	made.Annotations = map[string]string{"kept": "<yes>", InitializersAnnotation: list}
	return made
}

// storing returns a plugin of a server that stores Pods before they are initialized.
func storing(t *testing.T, socket, more string) *Plugin {
	t.Helper()
	p := plugin(t, socket, more)
	p.initialization = NewInitialization()
	p.initialization.storages[pods.GroupResource()] = &Storage{initialization: p.initialization, resource: pods}
	p.initialization.plugin.Store(p)
	return p
}

func TestListTravelsAsAFieldOfTheMetadata(t *testing.T) {
	text, err := encode(unfinishedPod(twoPending))
	if err != nil {
		t.Fatal(err)
	}
	sent, err := listAsField(text)
	if err != nil || !strings.Contains(string(sent), `"initializers":{"pending":[{"name":"one.example.com"}`) || strings.Contains(string(sent), InitializersAnnotation) {
		t.Fatal(string(sent), err)
	}
	back, err := listAsAnnotation(sent)
	if err != nil {
		t.Fatal(err)
	}
	var read corev1.Pod
	if err := json.Unmarshal(back, &read); err != nil {
		t.Fatal(err)
	}
	if read.Annotations[InitializersAnnotation] != twoPending || read.Annotations["kept"] != "<yes>" {
		t.Error(read.Annotations)
	}

	// What is no list is for Gatepost to refuse, and must not be lost. It takes null for none.
	for _, list := range notLists {
		if text, err = encode(unfinishedPod(list)); err != nil {
			t.Fatal(err)
		}
		if sent, err = listAsField(text); err != nil || !strings.Contains(string(sent), `"initializers":"`+list+`"`) {
			t.Error(string(sent), err)
		}
	}
}

var notLists = []string{"{no list", "null", " null  ", "null null", "[]", "1", "true", ""}

func TestWhatIsNoListIsRefused(t *testing.T) {
	sidecar := start(t, allow)
	p := storing(t, sidecar.socket, "failurePolicy: Ignore\n")
	for _, list := range notLists {
		for name, request := range map[string]admission.Attributes{
			"CREATE":                  attributes(unfinishedPod(list), nil, admission.Create),
			"UPDATE":                  attributes(unfinishedPod(list), pod("a"), admission.Update),
			"UPDATE of an unfinished": attributes(unfinishedPod(list), unfinishedPod(twoPending), admission.Update),
		} {
			if err := p.Admit(context.Background(), request, objects); !apierrors.IsInvalid(err) {
				t.Errorf("%s with %q: %v", name, list, err)
			}
		}
	}
	if calls := sidecar.calls(); len(calls) != 0 {
		t.Error(calls)
	}
	// Which spelling of a list is right is Gatepost's to say.
	for _, list := range []string{"{}", " {}", `{"pending":[],"pending":[]}`} {
		if err := p.Admit(context.Background(), attributes(unfinishedPod(list), nil, admission.Create), objects); err != nil {
			t.Error(list, err)
		}
	}
	if calls := sidecar.calls(); len(calls) != 3 {
		t.Error(calls)
	}
}

func TestHookCannotWriteTheAnnotation(t *testing.T) {
	sidecar := start(t, patching(`[{"op": "add", "path": "/metadata/annotations", "value": {"init.gatepost.dev/initializers": "{}", "kept": "yes"}}]`))
	p := storing(t, sidecar.socket, "")
	changed := pod("a")
	if err := p.Admit(context.Background(), attributes(changed, pod("a"), admission.Update), objects); err != nil {
		t.Fatal(err)
	}
	if IsUnfinished(changed) || changed.Annotations["kept"] != "yes" {
		t.Error(changed.Annotations)
	}
}

func TestNewObjectIsStoredWithItsList(t *testing.T) {
	sidecar := start(t, patching(`[{"op": "add", "path": "/metadata/initializers", "value": `+twoPending+`}]`))
	p := storing(t, sidecar.socket, "")
	made := pod("a")
	request := attributes(made, nil, admission.Create)
	if err := p.Admit(context.Background(), request, objects); err != nil {
		t.Fatal(err)
	}
	if list, err := InitializersOf(made); err != nil || list == nil || len(list.Pending) != 2 || list.Creator.Username != "ann" {
		t.Fatalf("%v %v", made.Annotations, err)
	}
	if got := sidecar.metadata.Get(unfinishedKey); !slices.Equal(got, []string{"stored"}) {
		t.Error(got)
	}
	// Validating hooks judge the object when it becomes visible.
	if err := p.Validate(context.Background(), request, objects); err != nil || len(sidecar.calls()) != 1 {
		t.Error(err, sidecar.calls())
	}
	// A second round would take the list for the client's own.
	again := storing(t, sidecar.socket, "reinvocationPolicy: IfNeeded\n")
	request.GetReinvocationContext().SetIsReinvoke()
	if err := again.Admit(context.Background(), request, objects); err != nil || len(sidecar.calls()) != 1 {
		t.Error(err, sidecar.calls())
	}
	// Of resources that are stored initialized the annotation is one as any other.
	other := plugin(t, sidecar.socket, "")
	if err := other.Validate(context.Background(), attributes(made, nil, admission.Create), objects); err != nil {
		t.Fatal(err)
	}
	if got := sidecar.metadata.Get(unfinishedKey); got != nil {
		t.Error(got)
	}
}

func TestLastUpdateIsValidatedAsTheCreateOfTheCreator(t *testing.T) {
	var got []*admissionv1.AdmissionRequest
	sidecar := start(t, func(method string, request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		got = append(got, request)
		return allow(method, request)
	})
	p := storing(t, sidecar.socket, "")
	still := `{"pending":[{"name":"two.example.com"}]}`
	if err := p.Validate(context.Background(), attributes(unfinishedPod(still), unfinishedPod(twoPending), admission.Update), objects); err != nil || len(got) != 0 {
		t.Fatal(err, got)
	}
	if err := p.Validate(context.Background(), attributes(pod("a"), unfinishedPod(twoPending), admission.Update), objects); err != nil || len(got) != 1 {
		t.Fatal(err, got)
	}
	request := got[0]
	if request.Operation != admissionv1.Create || request.OldObject.Raw != nil || request.UserInfo.Username != "ann" || request.UserInfo.UID != "7" ||
		!slices.Equal(request.UserInfo.Groups, []string{"team"}) || !slices.Equal(request.UserInfo.Extra["scope"], []string{"a"}) {
		t.Errorf("%+v", request)
	}
	// Once initialized it is an object as any other.
	if err := p.Validate(context.Background(), attributes(pod("a"), pod("a"), admission.Update), objects); err != nil || len(got) != 2 || got[1].Operation != admissionv1.Update {
		t.Error(err, got)
	}
}

func TestListIsGuardedWithoutGatepost(t *testing.T) {
	for name, request := range map[string]admission.Attributes{
		"made hidden":     attributes(unfinishedPod("{}"), nil, admission.Create),
		"hidden":          attributes(unfinishedPod("{}"), pod("a"), admission.Update),
		"shown":           attributes(pod("a"), unfinishedPod(twoPending), admission.Update),
		"changed, hidden": attributes(unfinishedPod("{}"), unfinishedPod(twoPending), admission.Update),
	} {
		p := storing(t, "/nowhere", "failurePolicy: Ignore\n")
		if err := p.Admit(context.Background(), request, objects); !apierrors.IsInternalError(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	p := storing(t, "/nowhere", "failurePolicy: Ignore\n")
	if err := p.Admit(context.Background(), attributes(pod("a"), nil, admission.Create), objects); err != nil {
		t.Error(err)
	}
	// Everyone may delete one.
	if err := p.Validate(context.Background(), attributes(nil, unfinishedPod(twoPending), admission.Delete), objects); err != nil {
		t.Error(err)
	}
}

func TestListIsSentWhateverTheRulesAre(t *testing.T) {
	sidecar := start(t, allow)
	p := storing(t, sidecar.socket, "rules: [{operations: [CREATE], apiGroups: [apps], apiVersions: [v1], resources: [deployments]}]\n")
	if err := p.Admit(context.Background(), attributes(pod("a"), nil, admission.Create), objects); err != nil || len(sidecar.calls()) != 0 {
		t.Fatal(err, sidecar.calls())
	}
	if err := p.Admit(context.Background(), attributes(unfinishedPod("{}"), nil, admission.Create), objects); err != nil || len(sidecar.calls()) != 1 {
		t.Error(err, sidecar.calls())
	}
}

// As a user, who asks for objects that are not initialized if the query says so.
func as(name, query string) context.Context {
	ctx := genericapirequest.WithUser(context.Background(), ann)
	if name != "ann" {
		user := *ann
		user.Name = name
		ctx = genericapirequest.WithUser(context.Background(), &user)
	}
	ctx = genericapirequest.WithNamespace(ctx, "shop")
	var seen context.Context
	handler := (*Initialization)(nil).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = r.Context() }))
	handler.ServeHTTP(nil, httptest.NewRequest(http.MethodGet, "/pods?"+query, nil).WithContext(ctx))
	return seen
}

func TestReadPolicyHidesUnlessGatepostShows(t *testing.T) {
	var asked [][]byte
	answer := rawMessage{}
	sidecar := &sidecar{socket: t.TempDir() + "/s", answer: allow, streams: map[string]func(grpc.ServerStream) error{
		readPolicyMethod: func(stream grpc.ServerStream) error {
			var request rawMessage
			if err := stream.RecvMsg(&request); err != nil {
				return err
			}
			asked = append(asked, request)
			return stream.SendMsg(answer)
		},
	}}
	sidecar.serve(t)
	p := storing(t, sidecar.socket, "")
	for _, err := p.client.connected(context.Background()); err != nil; _, err = p.client.connected(context.Background()) {
	}
	read := Read{Verb: ReadGet, Resource: pods, Namespace: "shop", Name: "a"}

	answer = rawMessage(number(nil, 1, 1))
	if policy := p.initialization.ReadPolicy(as("ann", "includeUninitialized=true"), read); !policy.Shows(unfinishedPod("{}")) {
		t.Error("hidden")
	}
	if request := string(asked[0]); !strings.Contains(request, "ann") || !strings.Contains(request, "team") || !strings.HasSuffix(request, "\x40\x01") {
		t.Errorf("%q", request)
	}
	if p.initialization.ReadPolicy(as("ann", "includeUninitialized=no"), read); strings.HasSuffix(string(asked[1]), "\x40\x01") {
		t.Errorf("%q", asked[1])
	}

	// Hidden as Gatepost says, and otherwise with 202.
	hidden, err := (&metav1.Status{Code: 404}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	answer = rawMessage(nested(nested(nil, 4, hidden), 5, number(nil, 1, 60), nested([]byte(nil), 2, []byte("must.example.com"))))
	policy := p.initialization.ReadPolicy(as("ann", ""), read)
	if policy.Shows(unfinishedPod("{}")) || !policy.Shows(pod("a")) {
		t.Error("shown, or an initialized one hidden")
	}
	if err := policy.Hidden(pods.GroupResource(), unfinishedPod("{}")); !apierrors.IsNotFound(err) {
		t.Error(err)
	}
	answer = rawMessage("\xff")
	for name, policy := range map[string]ReadPolicy{
		"an answer that is none": p.initialization.ReadPolicy(as("ann", ""), read),
		"no sidecar":             storing(t, "/nowhere", "").initialization.ReadPolicy(as("ann", ""), read),
		"no plugin":              NewInitialization().ReadPolicy(as("ann", ""), read),
	} {
		var refused *apierrors.StatusError
		if policy.Shows(unfinishedPod("{}")) || !errors.As(policy.Hidden(pods.GroupResource(), unfinishedPod("{}")), &refused) {
			t.Fatal(name)
		}
		// Clients take a Status below 300 for an error only if it says Failure.
		said := refused.ErrStatus
		if said.Code != 202 || said.Status != metav1.StatusFailure || said.Reason != "Initializing" || said.ResourceVersion != "5" || said.Details.UID != "u" {
			t.Errorf("%s: %+v", name, said)
		}
	}
}

func TestReadRepairsWhatIsLateAndMayBeLeftOut(t *testing.T) {
	now := time.Now()
	policy := ReadPolicy{repair: &readRepair{olderThan: time.Minute, mustAct: []string{"must.example.com"}}}
	old := func(list string) *corev1.Pod {
		made := unfinishedPod(list)
		made.CreationTimestamp = metav1.NewTime(now.Add(-2 * time.Minute))
		return made
	}
	if head := policy.late(old(twoPending), now); head != "one.example.com" {
		t.Error(head)
	}
	young := unfinishedPod(twoPending)
	young.CreationTimestamp = metav1.NewTime(now)
	for name, object := range map[string]*corev1.Pod{
		"young": young, "one that must act": old(`{"pending":[{"name":"must.example.com"}]}`), "failed": old(`{"pending":[{"name":"a"}],"result":{}}`),
		"initialized": pod("a"), "no list": old("{"),
	} {
		if head := policy.late(object, now); head != "" {
			t.Errorf("%s: %s", name, head)
		}
	}
	if head := (ReadPolicy{}).late(old(twoPending), now); head != "" {
		t.Error(head)
	}
}

func TestHoldAsksAgainUntilItEnds(t *testing.T) {
	refused, err := (&metav1.Status{Code: 403, Message: "no"}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	var mutex sync.Mutex
	count := 0
	sidecar := &sidecar{socket: t.TempDir() + "/s", answer: allow, streams: map[string]func(grpc.ServerStream) error{
		holdMethod: func(stream grpc.ServerStream) error {
			mutex.Lock()
			defer mutex.Unlock()
			if count++; count < 3 {
				return status.Error(codes.Unavailable, "shutting down")
			}
			return stream.SendMsg(rawMessage(nested([]byte(nil), 2, refused)))
		},
	}}
	sidecar.serve(t)
	p := storing(t, sidecar.socket, "")
	end, err := p.client.hold(context.Background(), holdMessage(objectName{name: "a"}, "5"))
	if err != nil || end.refusal == nil || end.refusal.Message != "no" || count != 3 {
		t.Error(end, err, count)
	}
	// Without a sidecar, until its time is over.
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := storing(t, "/nowhere", "").client.hold(ctx, nil); !errors.Is(err, errNotHeld) {
		t.Error(err)
	}
}

func TestHoldsHaveConnectionsOfTheirOwn(t *testing.T) {
	client := plugin(t, "/nowhere", "").client
	used := map[*grpc.ClientConn]int{}
	var releases []func()
	for range 2*maxHoldsPerConnection + 1 {
		hold, release, err := client.holdConnection()
		if err != nil || slices.ContainsFunc(client.connections, func(of *connection) bool { return of.ClientConn == hold }) {
			t.Fatal(err)
		}
		used[hold]++
		releases = append(releases, release)
	}
	if len(used) != 3 || len(client.holds) != 3 {
		t.Error(len(used), len(client.holds))
	}
	for _, release := range releases {
		release()
	}
	if len(client.holds) != 1 || client.holds[0].calls != 0 {
		t.Error(client.holds)
	}
}

func TestOnlyADenialFailsAnObject(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for _, err := range []error{apierrors.NewForbidden(pods, "a", errors.New("exceeded quota")), apierrors.NewInvalid(podKind.GroupKind(), "a", nil)} {
		if denial(err) == nil {
			t.Error(err)
		}
	}
	for _, err := range []error{
		nil, errors.New("etcd"), apierrors.NewInternalError(errors.New("nobody answers")), apierrors.NewConflict(pods, "a", nil),
		apierrors.NewTooManyRequests("later", 1), apierrors.NewTimeoutError("late", 0),
		apierrors.NewForbidden(pods, "a", errors.New("not yet ready to handle request")),
		apierrors.NewForbidden(pods, "a", errors.New("status unknown for quota: q, resources: pods")),
	} {
		if said := denial(err); said != nil {
			t.Error(err, said)
		}
	}
}

func TestResultIsCut(t *testing.T) {
	said := metav1.Status{Message: strings.Repeat("a", 1<<20), Code: 403, Details: &metav1.StatusDetails{Causes: make([]metav1.StatusCause, 1000)}}
	if result := storedResult(said); len(result.Message) > maxResultText+4 || len(result.Details.Causes) != maxCauses || result.Status != metav1.StatusFailure {
		t.Error(len(result.Message), len(result.Details.Causes))
	}
}
