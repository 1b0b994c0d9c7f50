package main

import (
	"bytes"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

func TestBothEncodingsAreReadAlike(t *testing.T) {
	for name, encoder := range map[string]runtime.Encoder{
		"protobuf": protobuf.NewSerializer(nil, nil),
		"JSON":     json.NewSerializerWithOptions(json.DefaultMetaFactory, nil, nil, json.SerializerOptions{}),
	} {
		for label, allowed := range map[string]bool{"deny": false, "allow": true} {
			account := &corev1.ServiceAccount{
				TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
				ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"example": label}},
			}
			var object bytes.Buffer
			if err := encoder.Encode(account, &object); err != nil {
				t.Fatal(err)
			}
			response, err := judge(&admissionv1.AdmissionRequest{UID: "u", Object: runtime.RawExtension{Raw: object.Bytes()}})
			if err != nil || response.Allowed != allowed || response.UID != "u" {
				t.Fatalf("%s %s: %v, %v", name, label, response, err)
			}
			if !allowed && !strings.HasSuffix(response.Result.Message, "read in "+name) {
				t.Errorf("%s: %s", name, response.Result.Message)
			}
		}
	}
	for _, object := range []string{"", "k8s\x00", "k8s\x00\x0a\x7f", "{}", "nonsense"} {
		if _, err := judge(&admissionv1.AdmissionRequest{Object: runtime.RawExtension{Raw: []byte(object)}}); err == nil {
			t.Errorf("%q is judged", object)
		}
	}
}
