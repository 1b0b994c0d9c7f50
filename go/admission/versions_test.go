package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/admission"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
)

// A resource with two versions, as a server has it: its own type, and conversions.
type (
	widget struct {
		metav1.TypeMeta
		metav1.ObjectMeta
		Size, Colour string
	}
	widgetV1 struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Size              string `json:"size"`
		Colour            string `json:"colour,omitempty"`
	}
	widgetV2 struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Extent            string `json:"extent"`
		Hue               string `json:"hue,omitempty"`
	}
)

func copyOf[T any](of *T) *T { another := *of; return &another }

func (w *widget) DeepCopyObject() runtime.Object   { return copyOf(w) }
func (w *widgetV1) DeepCopyObject() runtime.Object { return copyOf(w) }
func (w *widgetV2) DeepCopyObject() runtime.Object { return copyOf(w) }

func widgets(version string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "x.io", Version: version, Resource: "widgets"}
}

// versioned are the interfaces of a server that has widgets in these versions.
func versioned(versions ...string) admission.ObjectInterfaces {
	scheme := runtime.NewScheme()
	named := func(version string, object runtime.Object) {
		scheme.AddKnownTypeWithName(schema.GroupVersionKind{Group: "x.io", Version: version, Kind: "Widget"}, object)
	}
	named(runtime.APIVersionInternal, &widget{})
	named("v1", &widgetV1{})
	named("v2", &widgetV2{})
	named("v3", &widgetV2{})
	convert := func(from, to any, function conversion.ConversionFunc) {
		utilruntime.Must(scheme.AddConversionFunc(from, to, function))
	}
	convert((*widget)(nil), (*widgetV1)(nil), func(from, to any, _ conversion.Scope) error {
		from_, to_ := from.(*widget), to.(*widgetV1)
		to_.ObjectMeta, to_.Size, to_.Colour = from_.ObjectMeta, from_.Size, from_.Colour
		return nil
	})
	convert((*widgetV1)(nil), (*widget)(nil), func(from, to any, _ conversion.Scope) error {
		from_, to_ := from.(*widgetV1), to.(*widget)
		to_.ObjectMeta, to_.Size, to_.Colour = from_.ObjectMeta, from_.Size, from_.Colour
		return nil
	})
	convert((*widget)(nil), (*widgetV2)(nil), func(from, to any, _ conversion.Scope) error {
		from_, to_ := from.(*widget), to.(*widgetV2)
		if from_.Size == "inconvertible" {
			return errors.New("no such extent")
		}
		to_.ObjectMeta, to_.Extent, to_.Hue = from_.ObjectMeta, from_.Size, from_.Colour
		return nil
	})
	convert((*widgetV2)(nil), (*widget)(nil), func(from, to any, _ conversion.Scope) error {
		from_, to_ := from.(*widgetV2), to.(*widget)
		to_.ObjectMeta, to_.Size, to_.Colour = from_.ObjectMeta, from_.Extent, from_.Hue
		return nil
	})
	registry := runtime.NewEquivalentResourceRegistry()
	for _, version := range versions {
		registry.RegisterKindFor(widgets(version), "", widgets(version).GroupVersion().WithKind("Widget"))
	}
	return &admission.RuntimeObjectInterfaces{ObjectCreater: scheme, ObjectTyper: scheme, ObjectDefaulter: scheme, ObjectConvertor: scheme, EquivalentResourceMapper: registry}
}

// A noted request remembers its audit annotations, of each key one, as the server's own record does.
type noted struct {
	admission.Attributes
	annotations map[string]string
}

func (a *noted) AddAnnotationWithLevel(key, value string, level auditinternal.Level) error {
	if err := a.Attributes.AddAnnotationWithLevel(key, value, level); err != nil {
		return err
	}
	if a.annotations == nil {
		a.annotations = map[string]string{}
	}
	a.annotations[key] = value
	return nil
}

func (a *noted) AddAnnotation(key, value string) error {
	return a.AddAnnotationWithLevel(key, value, auditinternal.LevelMetadata)
}

// madeInV1 is a request of a client that writes x.io/v1.
func madeInV1(object, old *widget, operation admission.Operation) *noted {
	var objects [2]runtime.Object
	for n, one := range []*widget{object, old} {
		if one != nil {
			objects[n] = one
		}
	}
	kind := widgets("v1").GroupVersion().WithKind("Widget")
	return &noted{Attributes: admission.NewAttributesRecord(objects[0], objects[1], kind, "shop", "a", widgets("v1"), "", operation, nil, false, ann)}
}

// wanting is a sidecar that wants each request in these versions too. It notes what it is asked: the method, both versions,
// the versions that it was told of, and the objects.
func wanting(t *testing.T, versions string, answer func(version string, response *admissionv1.AdmissionResponse)) (*sidecar, func() []string) {
	var notes []string
	var s *sidecar
	s = start(t, func(method string, request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		object := string(request.Object.Raw)
		if len(request.OldObject.Raw) > 0 {
			object += " was " + string(request.OldObject.Raw)
		}
		if request.Kind.Kind != "Widget" || *request.RequestKind != (metav1.GroupVersionKind{Group: "x.io", Version: "v1", Kind: "Widget"}) || request.Kind.Version != request.Resource.Version {
			return nil, fmt.Errorf("kinds %v and %v", request.Kind, request.RequestKind)
		}
		notes = append(notes, fmt.Sprintf("%s %s<-%s of %s: %s", method[strings.LastIndexByte(method, '/')+1:], request.Resource.Version, request.RequestResource.Version,
			strings.Join(s.metadata.Get(versionsKey), ";"), object))
		response, _ := allow(method, request)
		response.AuditAnnotations = map[string]string{revision: "7", "h.x/seen": request.Resource.Version}
		if request.Resource == *request.RequestResource && versions != "" {
			response.AuditAnnotations[otherVersions] = versions
		}
		if answer != nil {
			answer(request.Resource.Version, response)
		}
		return response, nil
	})
	return s, func() []string {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		return slices.Clone(notes)
	}
}

// askedIn are the versions of what a sidecar notes.
func askedIn(notes []string) string {
	var versions []string
	for _, note := range notes {
		versions = append(versions, strings.Fields(note)[1][:2])
	}
	return strings.Join(versions, " ")
}

func patch(response *admissionv1.AdmissionResponse, text string) {
	kind := admissionv1.PatchTypeJSONPatch
	response.Patch, response.PatchType = []byte(text), &kind
}

func asJSON(object any) string {
	text, _ := json.Marshal(object)
	return string(text)
}

func inV1(size, colour string) string {
	return asJSON(&widgetV1{metav1.TypeMeta{APIVersion: "x.io/v1", Kind: "Widget"}, metav1.ObjectMeta{Name: "a"}, size, colour})
}

func inV2(extent, hue string) string {
	return asJSON(&widgetV2{metav1.TypeMeta{APIVersion: "x.io/v2", Kind: "Widget"}, metav1.ObjectMeta{Name: "a"}, extent, hue})
}

func aWidget(size string) *widget {
	return &widget{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Size: size}
}

const both = "x.io/v1/widgets,x.io/v2/widgets"

// Each phase has the request once in each version that is wanted; what one version has changed the next one sees.
func TestRequestIsSentInEachVersionThatIsWanted(t *testing.T) {
	s, notes := wanting(t, "x.io/v2/widgets", func(version string, response *admissionv1.AdmissionResponse) {
		field := map[string]string{"v1": "colour", "v2": "hue"}[version]
		patch(response, `[{"op":"add","path":"/`+field+`","value":"of `+version+`"}]`)
	})
	server := versioned("v1", "v2")
	object := aWidget("large")
	create := madeInV1(object, nil, admission.Create)
	if err := plugin(t, s.socket, "").Admit(context.Background(), create, server); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"Mutate v1<-v1 of " + both + ": " + inV1("large", ""),
		"Mutate v2<-v1 of " + both + ": " + inV2("large", "of v1"),
	}
	if got := notes(); !slices.Equal(got, want) {
		t.Errorf("asked %q", got)
	}
	if object.Colour != "of v2" || !create.GetReinvocationContext().ShouldReinvoke() {
		t.Errorf("the object is %+v", object)
	}
	// The revision is that of all versions, and the versions are nobody's but the plugin's.
	if want := map[string]string{revision: "7", "h.x/seen": "v1", "h.x/seen_v2": "v2"}; !maps.Equal(create.annotations, want) {
		t.Errorf("annotations %q", create.annotations)
	}
}

func TestValidationAndDeletionAreSentInEachVersionThatIsWanted(t *testing.T) {
	s, notes := wanting(t, "x.io/v2/widgets", nil)
	p, server := plugin(t, s.socket, ""), versioned("v1", "v2")
	update := madeInV1(aWidget("large"), aWidget("small"), admission.Update)
	remove := madeInV1(nil, aWidget("small"), admission.Delete)
	if err := errors.Join(p.Validate(context.Background(), update, server), p.Validate(context.Background(), remove, server)); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"Validate v1<-v1 of " + both + ": " + inV1("large", "") + " was " + inV1("small", ""),
		"Validate v2<-v1 of " + both + ": " + inV2("large", "") + " was " + inV2("small", ""),
		"Review v1<-v1 of " + both + ":  was " + inV1("small", ""),
		"Review v2<-v1 of " + both + ":  was " + inV2("small", ""),
	}
	if got := notes(); !slices.Equal(got, want) {
		t.Errorf("asked %q", got)
	}
}

// One call, whatever the server has, where nothing else is wanted: also of a Gatepost that knows no versions.
func TestRequestIsSentOnceIfNoOtherVersionIsWanted(t *testing.T) {
	for _, versions := range [][]string{{"v1", "v2"}, {"v1"}, nil} {
		s, notes := wanting(t, "", nil)
		if err := plugin(t, s.socket, "").Validate(context.Background(), madeInV1(aWidget("large"), nil, admission.Create), versioned(versions...)); err != nil {
			t.Fatal(err)
		}
		listed := make([]schema.GroupVersionResource, len(versions))
		for n, version := range versions {
			listed[n] = widgets(version)
		}
		if got := notes(); !slices.Equal(got, []string{"Validate v1<-v1 of " + versionsText(listed) + ": " + inV1("large", "")}) {
			t.Errorf("asked %q", got)
		}
	}
}

// A hook that is for v1 in one configuration and for v2 in the next must not be passed over between two reviews.
func TestRequestIsSentAnewIfTheConfigurationChangedBetweenItsVersions(t *testing.T) {
	for changes, want := range map[int]string{
		1:   "v1 v2 v1 v2",
		100: "v1 v2 v1 v2 v1 v2",
	} {
		isSettled := changes == 1
		s, notes := wanting(t, "x.io/v2/widgets", func(version string, response *admissionv1.AdmissionResponse) {
			if version == "v2" && changes > 0 {
				changes--
				response.AuditAnnotations[revision] = "8"
			}
		})
		err := plugin(t, s.socket, "").Validate(context.Background(), madeInV1(aWidget("large"), nil, admission.Create), versioned("v1", "v2"))
		if got := askedIn(notes()); got != want {
			t.Errorf("asked in %q", got)
		}
		if isSettled != (err == nil) || err != nil && !strings.Contains(err.Error(), errUnsettled.Error()) {
			t.Errorf("%v", err)
		}
	}
}

func TestFaultsOfOtherVersions(t *testing.T) {
	deny := func(version string, response *admissionv1.AdmissionResponse) {
		if version == "v2" {
			response.Allowed, response.Result = false, &metav1.Status{Code: 403, Message: "not in v2"}
		}
	}
	anotherUID := func(version string, response *admissionv1.AdmissionResponse) {
		if version == "v2" {
			response.UID = "other"
		}
	}
	change := func(_ string, response *admissionv1.AdmissionResponse) { patch(response, "[]") }
	for name, fault := range map[string]struct {
		wants  string
		answer func(string, *admissionv1.AdmissionResponse)
		size   string
		says   string
		// An error under Ignore too.
		closed bool
	}{
		"denial":                      {"x.io/v2/widgets", deny, "large", "not in v2", true},
		"no verdict":                  {"x.io/v2/widgets", anotherUID, "large", `got "other"`, false},
		"a version that is not there": {"x.io/v3/widgets", nil, "large", "versions that the server does not have", false},
		"the client's own version":    {"x.io/v1/widgets", nil, "large", "versions that the server does not have", false},
		"a version twice":             {"x.io/v2/widgets,x.io/v2/widgets", nil, "large", "versions that the server does not have", false},
		"more than was sent":          {strings.Repeat(",", 1<<20), nil, "large", "of 1048576 bytes, of which 31 were sent", false},
		"no version":                  {",", nil, "large", "versions that the server does not have", false},
		"a patch":                     {"x.io/v2/widgets", change, "large", "it changes the object", false},
		// As with a webhook.
		"no conversion": {"x.io/v2/widgets", nil, "inconvertible", "no such extent", true},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := wanting(t, fault.wants, fault.answer)
			for _, policy := range []string{"Fail", "Ignore"} {
				err := plugin(t, s.socket, "failurePolicy: "+policy).Validate(context.Background(), madeInV1(aWidget(fault.size), nil, admission.Create), versioned("v1", "v2"))
				if policy == "Ignore" && !fault.closed {
					if err != nil {
						t.Errorf("Ignore: %v", err)
					}
					continue
				}
				var status apierrors.APIStatus
				if !errors.As(err, &status) || !strings.Contains(err.Error(), fault.says) {
					t.Errorf("%s: %v", policy, err)
				}
			}
		})
	}
}

// A replica denies in a version although it calls the configuration by another number.
func TestVersionsAfterOneOfAnotherRevisionAreAskedToo(t *testing.T) {
	for _, policy := range []string{"Fail", "Ignore"} {
		s, notes := wanting(t, "x.io/v2/widgets,x.io/v3/widgets", func(version string, response *admissionv1.AdmissionResponse) {
			switch version {
			case "v2":
				response.AuditAnnotations[revision] = "9"
			case "v3":
				response.Allowed, response.Result = false, &metav1.Status{Code: 403, Message: "not in v3"}
			}
		})
		err := plugin(t, s.socket, "failurePolicy: "+policy).Validate(context.Background(), madeInV1(aWidget("large"), nil, admission.Create), versioned("v1", "v2", "v3"))
		if err == nil || !strings.Contains(err.Error(), "not in v3") {
			t.Errorf("%s: %v", policy, err)
		}
		if got := askedIn(notes()); got != "v1 v2 v3" {
			t.Errorf("%s: asked in %q", policy, got)
		}
	}
}

// A shared listener gives out connections that another one has accepted.
type sharedListener struct {
	net.Listener
	connections chan net.Conn
	closed      chan struct{}
}

func (l sharedListener) Accept() (net.Conn, error) {
	select {
	case connection := <-l.connections:
		return connection, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l sharedListener) Close() error { return nil }

// Two replicas behind one address, with one configuration: each names the revision at which it read it first.
func TestVersionsOfARequestGoToOneReplica(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	var replicas []sharedListener
	for _, named := range []string{"7", "9"} {
		server := grpc.NewServer(grpc.ForceServerCodecV2(reviews{}), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
			var review admissionv1.AdmissionReview
			if method, _ := grpc.MethodFromServerStream(stream); method == followMethod {
				<-stream.Context().Done()
				return nil
			}
			if err := stream.RecvMsg(&review); err != nil {
				return err
			}
			response, _ := allow("", review.Request)
			response.AuditAnnotations = map[string]string{revision: named, otherVersions: "x.io/v2/widgets"}
			return stream.SendMsg(&admissionv1.AdmissionReview{Response: response})
		}))
		replica := sharedListener{listener, make(chan net.Conn, maxConnections), closed}
		replicas = append(replicas, replica)
		go func() { _ = server.Serve(replica) }()
		t.Cleanup(server.Stop)
	}
	// Before the servers stop, which wait for it.
	t.Cleanup(func() { close(closed); _ = listener.Close() })
	go func() {
		for turn := 0; ; turn++ {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			replicas[turn%2].connections <- connection
		}
	}()
	p := plugin(t, socket, "")
	p.client.inTurn = true
	for _, connection := range p.client.connections {
		for state := connection.GetState(); state != connectivity.Ready; state = connection.GetState() {
			if !connection.WaitForStateChange(t.Context(), state) {
				t.Fatal("not connected")
			}
		}
	}
	seen := map[string]bool{}
	for range 20 {
		request := madeInV1(aWidget("large"), nil, admission.Create)
		if err := p.Validate(context.Background(), request, versioned("v1", "v2")); err != nil {
			t.Fatal(err)
		}
		seen[request.annotations[revision]] = true
	}
	if len(p.client.connections) > 1 && len(seen) != 2 {
		t.Errorf("asked only %v", seen)
	}
}

// A lost connection is no reason to fail a request whose other versions another one can take.
func TestLostConnectionIsReplacedWithinARound(t *testing.T) {
	s := start(t, allow)
	p := plugin(t, s.socket, "")
	lost, err := grpc.NewClient("passthrough:///nobody", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lost.Close() })
	one, err := p.client.sameConnection(context.Background(), &connection{ClientConn: lost})
	if err != nil || one.ClientConn == lost {
		t.Fatal(err)
	}
	for range 2 * maxConnections {
		if again, err := p.client.sameConnection(context.Background(), one); err != nil || again != one {
			t.Errorf("another connection: %v", err)
		}
	}
}

// What hooks do to the object they do once, however often they are called.
func TestPatchesOfARoundThatBeginsAnewAreTakenBack(t *testing.T) {
	changes := 2
	s, notes := wanting(t, "x.io/v2/widgets", func(version string, response *admissionv1.AdmissionResponse) {
		patch(response, `[{"op":"add","path":"/metadata/finalizers/-","value":"x.io/of-`+version+`"}]`)
		if version == "v2" && changes > 0 {
			changes--
			response.AuditAnnotations[revision] = "8"
		}
		response.AuditAnnotations["h.x/changes"] = fmt.Sprint(changes)
	})
	object := aWidget("large")
	object.Finalizers = []string{"x.io/first"}
	request := madeInV1(object, nil, admission.Create)
	if err := plugin(t, s.socket, "").Admit(context.Background(), request, versioned("v1", "v2")); err != nil {
		t.Fatal(err)
	}
	if got := askedIn(notes()); got != "v1 v2 v1 v2 v1 v2" {
		t.Errorf("asked in %q", got)
	}
	if want := []string{"x.io/first", "x.io/of-v1", "x.io/of-v2"}; !slices.Equal(object.Finalizers, want) {
		t.Errorf("finalizers %q", object.Finalizers)
	}
	// Annotations are those of the last round.
	if want := map[string]string{revision: "7", "h.x/seen": "v1", "h.x/seen_v2": "v2", "h.x/changes": "0"}; !maps.Equal(request.annotations, want) {
		t.Errorf("annotations %q", request.annotations)
	}
}

// Keys of Gatepost's annotations count hooks, in each version from the beginning.
func TestAnnotationsOfTwoVersionsMeet(t *testing.T) {
	const failed = "failed-open.validating.webhook.admission.k8s.io/round_0_index_0"
	for _, isDenied := range []bool{false, true} {
		s, _ := wanting(t, "x.io/v2/widgets", func(version string, response *admissionv1.AdmissionResponse) {
			response.AuditAnnotations[failed] = "hook-of-" + version
			response.AuditAnnotations[validationFailures] = `[{"policy":"of-` + version + `"}]`
			response.AuditAnnotations["bypass.gatepost.dev/nodes"] = "skip: they wait"
			response.Allowed = version == "v1" || !isDenied
		})
		request := madeInV1(aWidget("large"), nil, admission.Create)
		err := plugin(t, s.socket, "").Validate(context.Background(), request, versioned("v1", "v2"))
		if isDenied != (err != nil) {
			t.Error(err)
		}
		if want := map[string]string{
			revision: "7", "h.x/seen": "v1", "h.x/seen_v2": "v2", failed: "hook-of-v1", failed + "_v2": "hook-of-v2",
			validationFailures: `[{"policy":"of-v1"},{"policy":"of-v2"}]`, "bypass.gatepost.dev/nodes": "skip: they wait",
		}; !maps.Equal(request.annotations, want) {
			t.Errorf("annotations %q", request.annotations)
		}
	}
}

func TestAnnotationsThatAreNoListsAreKeptApart(t *testing.T) {
	var all annotations
	all.add(validationFailures, annotation{value: "[]"}, widgets("v1"))
	all.add(validationFailures, annotation{value: "{"}, widgets("v2"))
	all.add(validationFailures, annotation{value: "}"}, widgets("v2"))
	if want := (annotations{validationFailures: {value: "[]"}, validationFailures + "_v2": {value: "{"}, validationFailures + "_v2_v2": {value: "}"}}); !maps.Equal(all, want) {
		t.Errorf("%v", all)
	}
}

// A list that takes up the headers' room would fail each call.
func TestListOfVersionsThatIsTooLongIsNotSent(t *testing.T) {
	for count, isSent := range map[int]bool{maxVersions: true, maxVersions + 1: false} {
		var short []string
		for n := range count {
			short = append(short, fmt.Sprintf("v%d", n+1))
		}
		if got := equivalents(madeInV1(nil, nil, admission.Create), versioned(short...)); (len(got) == count) != isSent {
			t.Errorf("%d of %d versions", len(got), count)
		}
	}
	long := []string{"v1", "v2" + strings.Repeat("0", maxVersionsBytes)}
	s, notes := wanting(t, "", nil)
	if err := plugin(t, s.socket, "").Validate(context.Background(), madeInV1(aWidget("large"), nil, admission.Create), versioned(long...)); err != nil {
		t.Fatal(err)
	}
	if got := notes(); len(got) != 1 || !strings.Contains(got[0], " of : ") {
		t.Errorf("asked %q", got)
	}
}

func TestVersionsHaveOneTimeTogether(t *testing.T) {
	for _, policy := range []string{"Fail", "Ignore"} {
		s, notes := wanting(t, "x.io/v2/widgets,x.io/v3/widgets", func(string, *admissionv1.AdmissionResponse) {
			time.Sleep(400 * time.Millisecond)
		})
		p := plugin(t, s.socket, "timeout: 600ms\nfailurePolicy: "+policy)
		began := time.Now()
		request := madeInV1(aWidget("large"), nil, admission.Create)
		err := p.Validate(context.Background(), request, versioned("v1", "v2", "v3"))
		if took := time.Since(began); took > time.Second {
			t.Errorf("%s: %s", policy, took)
		}
		if isLate := err != nil && strings.Contains(err.Error(), "no answer within 600ms"); isLate != (policy == "Fail") {
			t.Errorf("%s: %v", policy, err)
		}
		if said := request.annotations[failedOpen+"Validate"]; (said != "") != (policy == "Ignore") {
			t.Errorf("%s: %v", policy, request.annotations)
		}
		if got := askedIn(notes()); strings.Contains(got, "v3") {
			t.Errorf("%s: asked in %q", policy, got)
		}
	}
}

// An object that cannot be converted shows whether it was tried.
func TestNothingIsConvertedForAClientThatHasGone(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	s, _ := wanting(t, "x.io/v2/widgets", nil)
	p, server := plugin(t, s.socket, "failurePolicy: Ignore"), versioned("v1", "v2")
	request := madeInV1(aWidget("inconvertible"), nil, admission.Create)
	first, err := (&Plugin{}).encodeRequest(request, versionOf(request), server, false)
	if err != nil {
		t.Fatal(err)
	}
	err = p.inEachVersion(ctx, validate, first, server, func(*encodedRequest, *admissionv1.AdmissionResponse) error {
		cancel()
		return nil
	})
	if !apierrors.IsTimeout(err) {
		t.Error(err)
	}
}
