package admission

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
)

// largePod is a Pod of about so many bytes in JSON, most of them in containers.
func largePod(bytes int) *corev1.Pod {
	object := pod("a")
	for n := 0; bytes > 0; n++ {
		container := corev1.Container{Name: fmt.Sprint("c", n), Image: "registry.example.com/app:1", Command: []string{"sh", "-c", strings.Repeat("run ", 100)}}
		for m := range 10 {
			container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprint("VARIABLE_", m), Value: "a value of some length"})
		}
		object.Spec.Containers = append(object.Spec.Containers, container)
		bytes -= 1100
	}
	return object
}

// An encodingCase is a request that is encoded in one version.
type encodingCase struct {
	name       string
	attributes admission.Attributes
	in         version
	objects    admission.ObjectInterfaces
	protobuf   bool
}

// encodingCases are requests of three sizes; one of each is in another version than the client's, and two are in protobuf.
func encodingCases() []encodingCase {
	inV2 := version{widgets("v2"), widgets("v2").GroupVersion().WithKind("Widget")}
	var cases []encodingCase
	for _, size := range []int{2 << 10, 50 << 10, 500 << 10} {
		object, named := largePod(size), fmt.Sprintf("/%dKiB", size>>10)
		wide := madeInV1(&widget{Size: strings.Repeat("wide ", size/5)}, nil, admission.Create)
		cases = append(cases,
			encodingCase{"create" + named, attributes(object, nil, admission.Create), version{pods, podKind}, objects, false},
			encodingCase{"create in protobuf" + named, attributes(object, nil, admission.Create), version{pods, podKind}, objects, true},
			encodingCase{"update" + named, attributes(object, object, admission.Update), version{pods, podKind}, objects, false},
			encodingCase{"update in protobuf" + named, attributes(object, object, admission.Update), version{pods, podKind}, objects, true},
			encodingCase{"converted" + named, wide, inV2, versioned("v1", "v2"), false})
	}
	return cases
}

// encode encodes the request again and again, and returns the length of the message.
func (c *encodingCase) encode(b *testing.B) (length int) {
	b.ReportAllocs()
	for b.Loop() {
		one, err := (&Plugin{}).encodeRequest(c.attributes, c.in, c.objects, c.protobuf)
		if err != nil {
			b.Fatal(err)
		}
		length = one.message.buffers().Len()
	}
	return length
}

// BenchmarkEncoding shows, with -benchmem, what is allocated for a review beside its length.
func BenchmarkEncoding(b *testing.B) {
	for _, one := range encodingCases() {
		b.Run(one.name, func(b *testing.B) { b.ReportMetric(float64(one.encode(b)), "encoded-B") })
	}
}

// A review costs one copy of each object in user space, conversion included, and no more than one and a half beside it.
func TestMessageCopiesAnObjectOnce(t *testing.T) {
	for _, one := range encodingCases() {
		length := 0
		result := testing.Benchmark(func(b *testing.B) { length = one.encode(b) })
		if perOp := result.AllocedBytesPerOp(); float64(perOp) > 2.5*float64(length) {
			t.Errorf("%s: %d bytes are allocated for a message of %d", one.name, perOp, length)
		}
	}
}
