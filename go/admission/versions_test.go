package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

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

// A noted request remembers its audit annotations.
type noted struct {
	admission.Attributes
	annotations []string
}

func (a *noted) AddAnnotationWithLevel(key, value string, _ auditinternal.Level) error {
	a.annotations = append(a.annotations, key+"="+value)
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
		kind := admissionv1.PatchTypeJSONPatch
		response.Patch, response.PatchType = []byte(`[{"op":"add","path":"/`+field+`","value":"of `+version+`"}]`), &kind
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
	slices.Sort(create.annotations)
	if want := []string{revision + "=7", "h.x/seen=v1", "h.x/seen=v2"}; !slices.Equal(create.annotations, want) {
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
		var got []string
		for _, note := range notes() {
			got = append(got, strings.Fields(note)[1][:2])
		}
		if strings.Join(got, " ") != want {
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
	patch := func(version string, response *admissionv1.AdmissionResponse) {
		kind := admissionv1.PatchTypeJSONPatch
		response.Patch, response.PatchType = []byte("[]"), &kind
	}
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
		"no version":                  {",", nil, "large", "versions that the server does not have", false},
		"a patch":                     {"x.io/v2/widgets", patch, "large", "it changes the object", false},
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
