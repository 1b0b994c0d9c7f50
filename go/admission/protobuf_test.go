package admission

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/kubernetes/scheme"
)

const protobufPods = podsRule + "|protobuf"

// encodingOf is the first of an object's bytes.
func encodingOf(raw []byte) string {
	switch {
	case len(raw) == 0:
		return "none"
	case strings.HasPrefix(string(raw), "k8s\x00"):
		return "protobuf"
	case raw[0] == '{':
		return "JSON"
	}
	return "unknown"
}

// encodingsAsked starts a sidecar whose index has these rules of the validating phase, and a plugin that follows it. The
// sidecar answers by the function, and notes each call with the encodings of both objects.
func encodingsAsked(t *testing.T, answer func(string, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error), rules ...string) (*Plugin, func() []string) {
	t.Helper()
	var notes []string
	s, script := indexed(t, phaseMessage(podsRule), phaseMessage(rules...))
	s.answer = func(method string, request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		s.mutex.Lock()
		notes = append(notes, fmt.Sprint(strings.TrimPrefix(method, "/gatepost.v1."), " ", encodingOf(request.Object.Raw), " ", encodingOf(request.OldObject.Raw)))
		s.mutex.Unlock()
		return answer(method, request)
	}
	p := plugin(t, s.socket, "")
	eventually(t, "the index is followed", script.acknowledged(1))
	return p, func() []string {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		return slices.Clone(notes)
	}
}

// refusing answers as a sidecar in whose configuration something reads the objects in JSON.
func refusing(method string, request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	if encodingOf(request.Object.Raw) != "protobuf" {
		return allow(method, request)
	}
	return &admissionv1.AdmissionResponse{
		UID:              request.UID,
		Result:           &metav1.Status{Code: http.StatusUnsupportedMediaType, Message: "send JSON"},
		AuditAnnotations: map[string]string{objectEncoding: "JSON", revision: "7"},
		Warnings:         []string{"of no verdict"},
	}, nil
}

func TestObjectsAreInProtobufIfEveryRuleTakesThem(t *testing.T) {
	create, update := attributes(pod("a"), nil, admission.Create), attributes(pod("a"), pod("a"), admission.Update)
	inProtobuf, inJSON := []string{"ProtobufAdmission/Validate protobuf none", "ProtobufAdmission/Validate protobuf protobuf"}, []string{"Admission/Validate JSON none", "Admission/Validate JSON JSON"}
	for name, one := range map[string]struct {
		rules []string
		want  []string
	}{
		"one takes them":                 {[]string{protobufPods}, inProtobuf},
		"one does not":                   {[]string{podsRule}, inJSON},
		"another that matches does not":  {[]string{protobufPods, "CREATE,UPDATE|*|v1|*|*|"}, inJSON},
		"another before does not":        {[]string{"CREATE,UPDATE|*|v1|*/*|*|", protobufPods}, inJSON},
		"another that does not match":    {[]string{protobufPods, configMapsRule}, inProtobuf},
		"two of different tables":        {[]string{protobufPods, "CREATE,UPDATE|*|*|pods|*||protobuf"}, inProtobuf},
		"another of the namespace alone": {[]string{protobufPods, "CREATE,UPDATE|*|*|*/*|Namespaced|shop"}, inJSON},
	} {
		t.Run(name, func(t *testing.T) {
			p, asked := encodingsAsked(t, allow, one.rules...)
			for _, request := range []admission.Attributes{create, update} {
				if err := p.Validate(context.Background(), request, objects); err != nil {
					t.Fatal(err)
				}
			}
			if got := asked(); !reflect.DeepEqual(got, one.want) {
				t.Errorf("asked %q, not %q", got, one.want)
			}
		})
	}
}

func TestOtherPhasesAndTypesAreInJSON(t *testing.T) {
	everything := "CREATE,UPDATE,DELETE,CONNECT|*|*|*/*|*||protobuf"
	p, asked := encodingsAsked(t, allow, everything)
	custom := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "a"}}}
	for _, one := range []struct {
		request admission.Attributes
		objects admission.ObjectInterfaces
	}{
		{attributes(custom, nil, admission.Create), objects},
		{attributes(pod("a"), custom, admission.Update), objects},
		{madeInV1(&widget{}, nil, admission.Create), versioned("v1")},
		{attributes(nil, pod("a"), admission.Delete), objects},
	} {
		if err := p.Validate(context.Background(), one.request, one.objects); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Admit(context.Background(), attributes(pod("a"), nil, admission.Create), objects); err != nil {
		t.Fatal(err)
	}
	want := []string{"Admission/Validate JSON none", "Admission/Validate JSON JSON", "Admission/Validate JSON none", "Admission/Review none JSON", "Admission/Mutate JSON none"}
	if got := asked(); !reflect.DeepEqual(got, want) {
		t.Errorf("asked %q, not %q", got, want)
	}
}

// A hook reads an object in protobuf by k8s.io/apimachinery, and then has the one that the client wrote.
func TestProtobufIsReadByKubernetesOwnDecoder(t *testing.T) {
	object := largePod(2 << 10)
	object.TypeMeta, object.Labels = metav1.TypeMeta{}, map[string]string{"a": "b"}
	var decoded runtime.Object
	p, _ := encodingsAsked(t, func(method string, request *admissionv1.AdmissionRequest) (response *admissionv1.AdmissionResponse, err error) {
		decoded, _, err = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Decode(request.Object.Raw, nil, nil)
		if err != nil {
			return nil, err
		}
		return allow(method, request)
	}, protobufPods)
	if err := p.Validate(context.Background(), attributes(object, nil, admission.Create), objects); err != nil {
		t.Fatal(err)
	}
	read, ok := decoded.(*corev1.Pod)
	if !ok || !apiequality.Semantic.DeepEqual(read.Spec, object.Spec) || read.Name != object.Name || read.Labels["a"] != "b" {
		t.Errorf("read %v", decoded)
	}
}

func TestRequestIsSentAgainInJSONOnceIfTheSidecarWantsThat(t *testing.T) {
	request := &noted{Attributes: attributes(pod("a"), nil, admission.Create)}
	p, asked := encodingsAsked(t, refusing, protobufPods)
	if err := p.Validate(context.Background(), request, objects); err != nil {
		t.Fatal(err)
	}
	want := []string{"ProtobufAdmission/Validate protobuf none", "Admission/Validate JSON none"}
	if got := asked(); !reflect.DeepEqual(got, want) {
		t.Errorf("asked %q", got)
	}
	if len(request.annotations) > 0 {
		t.Errorf("annotations of no verdict: %v", request.annotations)
	}
}

func TestEarlierSidecarGetsJSON(t *testing.T) {
	p, asked := encodingsAsked(t, func(method string, request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		if method == string(validateProtobuf) {
			return nil, status.Error(codes.Unimplemented, "unknown service")
		}
		return allow(method, request)
	}, protobufPods)
	if err := p.Validate(context.Background(), attributes(pod("a"), nil, admission.Create), objects); err != nil {
		t.Fatal(err)
	}
	if got := asked(); len(got) != 2 || got[1] != "Admission/Validate JSON none" {
		t.Errorf("asked %q", got)
	}
}

// A sidecar that wants JSON of a review in JSON, or that says so with an answer that it cannot mean, is not asked for ever,
// and opens nothing.
func TestSidecarThatLiesAboutEncodingsIsAskedTwiceAtMost(t *testing.T) {
	refusal := func(change func(*admissionv1.AdmissionResponse)) func(string, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		return func(method string, request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
			response := &admissionv1.AdmissionResponse{UID: request.UID, Result: &metav1.Status{Code: http.StatusUnsupportedMediaType}, AuditAnnotations: map[string]string{objectEncoding: "JSON"}}
			change(response)
			return response, nil
		}
	}
	for name, one := range map[string]struct {
		answer func(string, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error)
		calls  int
		code   int32
	}{
		"JSON of JSON":        {refusal(func(*admissionv1.AdmissionResponse) {}), 2, http.StatusUnsupportedMediaType},
		"of another request":  {refusal(func(response *admissionv1.AdmissionResponse) { response.UID = "x" }), 1, http.StatusInternalServerError},
		"an unknown encoding": {refusal(func(response *admissionv1.AdmissionResponse) { response.AuditAnnotations[objectEncoding] = "CBOR" }), 1, http.StatusUnsupportedMediaType},
		"unknown methods": {func(string, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
			return nil, status.Error(codes.Unimplemented, "unknown service")
		}, 2, http.StatusInternalServerError},
	} {
		t.Run(name, func(t *testing.T) {
			p, asked := encodingsAsked(t, one.answer, protobufPods)
			err := p.Validate(context.Background(), attributes(pod("a"), nil, admission.Create), objects)
			var refused *apierrors.StatusError
			if !errors.As(err, &refused) || refused.ErrStatus.Code != one.code {
				t.Errorf("%v", err)
			}
			if got := asked(); len(got) != one.calls {
				t.Errorf("asked %q", got)
			}
		})
	}
}

func TestRulesThatLieAboutEncodingsAreUnusable(t *testing.T) {
	text := nested(ruleMessage(podsRule), fieldProtobufObjects, "yes")
	var phase phaseIndex
	if err := phase.read(nested(nil, fieldPhaseRule, text)); err == nil {
		t.Error("a text is taken for true")
	}
	no := number(ruleMessage(protobufPods), fieldProtobufObjects, 0)
	if err := phase.read(nested(nil, fieldPhaseRule, no)); err != nil {
		t.Fatal(err)
	}
	request := newIndexRequest(attributes(pod("a"), nil, admission.Create))
	if phase.need(&request) != inJSON {
		t.Error("the last of two counts")
	}
}
