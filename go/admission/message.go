package admission

import (
	"bytes"
	"fmt"
	"slices"
	"unicode/utf8"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	jsonserializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	protobufserializer "k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apiserver/pkg/admission"
)

// Field numbers of k8s.io/api/admission/v1 AdmissionRequest, and of the messages around it.
const (
	fieldRequest            = 1
	fieldUID                = 1
	fieldKind               = 2
	fieldResource           = 3
	fieldSubResource        = 4
	fieldName               = 5
	fieldNamespace          = 6
	fieldOperation          = 7
	fieldUserInfo           = 8
	fieldObject             = 9
	fieldOldObject          = 10
	fieldDryRun             = 11
	fieldOptions            = 12
	fieldRequestKind        = 13
	fieldRequestResource    = 14
	fieldRequestSubResource = 15
	fieldRaw                = 1
	fieldMapEntry           = 1
	fieldMapKey             = 1
	fieldMapValue           = 2
)

// A message is one AdmissionReview in protobuf. The objects, in JSON or in Kubernetes' protobuf envelope, are not copied
// into it: they are sent from where they were encoded.
type message struct {
	uid types.UID
	// Whether the objects are in protobuf.
	isProtobuf bool
	// Fields before and after the objects; the first starts with the lengths around everything.
	before, after []byte
	// Tag and length of each object, and the object.
	objectHead, object       []byte
	oldObjectHead, oldObject []byte
	auditID                  string
	namespaceLabels          []byte
	// Versions in which the request can be sent.
	versions string
	// The server stores objects of this resource before they are initialized.
	stored bool
}

var (
	objectEncoder   = jsonserializer.NewSerializerWithOptions(jsonserializer.DefaultMetaFactory, nil, nil, jsonserializer.SerializerOptions{})
	protobufEncoder = protobufserializer.NewSerializer(nil, nil)
)

// A request in one version, with its objects in that version. (The VersionedAttributes of k8s.io/apiserver have other
// fields in 1.36 than in 1.37.)
type request struct {
	admission.Attributes
	version
	object, oldObject runtime.Object
	// The server stores objects of this resource before they are initialized.
	stored bool
}

// encode returns one of its objects in JSON, as Gatepost reads it.
func (r *request) encode(object runtime.Object) ([]byte, error) {
	text, err := encode(object)
	if err != nil || !r.stored || !IsUnfinished(object) {
		return text, err
	}
	return listAsField(text)
}

func newRequest(attributes admission.Attributes, in version, objects admission.ObjectInterfaces) (*request, error) {
	request := &request{Attributes: attributes, version: in}
	var err error
	if object := attributes.GetObject(); object != nil {
		if request.object, err = admission.ConvertToGVK(object, in.kind, objects); err != nil {
			return nil, err
		}
	}
	if object := attributes.GetOldObject(); object != nil {
		if request.oldObject, err = admission.ConvertToGVK(object, in.kind, objects); err != nil {
			return nil, err
		}
	}
	return request, nil
}

// newMessage encodes a request: each of its objects once, in protobuf if that is wanted and their type has it.
func newMessage(attributes *request, wantsProtobuf bool) (*message, error) {
	message := &message{uid: uuid.NewUUID(), stored: attributes.stored}
	// The list of a stored object is written into its JSON.
	message.isProtobuf = wantsProtobuf && !attributes.stored && hasProtobuf(attributes.object) && hasProtobuf(attributes.oldObject)
	encodeObject := attributes.encode
	if message.isProtobuf {
		encodeObject = encodeProtobuf
	}
	var err error
	if message.object, err = encodeObject(attributes.object); err != nil {
		return nil, fmt.Errorf("encoding the object: %w", err)
	}
	if message.oldObject, err = encodeObject(attributes.oldObject); err != nil {
		return nil, fmt.Errorf("encoding the old object: %w", err)
	}
	options, err := encode(attributes.GetOperationOptions())
	if err != nil {
		return nil, fmt.Errorf("encoding the options: %w", err)
	}

	userInfo, err := userMessage(attributes.GetUserInfo())
	if err != nil {
		return nil, err
	}

	var fields []byte
	text := func(number protowire.Number, text string) {
		if text != "" {
			fields = protowire.AppendString(protowire.AppendTag(fields, number, protowire.BytesType), valid(text))
		}
	}
	nested := func(number protowire.Number, bytes []byte) {
		fields = protowire.AppendBytes(protowire.AppendTag(fields, number, protowire.BytesType), bytes)
	}
	text(fieldUID, string(message.uid))
	nested(fieldKind, kindMessage(attributes.kind))
	nested(fieldResource, resourceMessage(attributes.resource))
	text(fieldSubResource, attributes.GetSubresource())
	text(fieldName, attributes.GetName())
	text(fieldNamespace, attributes.GetNamespace())
	text(fieldOperation, string(attributes.GetOperation()))
	nested(fieldUserInfo, userInfo)
	first := fields

	fields = nil
	fields = protowire.AppendTag(fields, fieldDryRun, protowire.VarintType)
	fields = protowire.AppendVarint(fields, protowire.EncodeBool(attributes.IsDryRun()))
	if options != nil {
		nested(fieldOptions, append(rawHead(options), options...))
	}
	nested(fieldRequestKind, kindMessage(attributes.GetKind()))
	nested(fieldRequestResource, resourceMessage(attributes.GetResource()))
	text(fieldRequestSubResource, attributes.GetSubresource())
	message.after = fields

	message.objectHead = extensionHead(fieldObject, message.object)
	message.oldObjectHead = extensionHead(fieldOldObject, message.oldObject)
	length := len(first) + len(message.objectHead) + len(message.object) +
		len(message.oldObjectHead) + len(message.oldObject) + len(message.after)
	head := protowire.AppendTag(nil, fieldRequest, protowire.BytesType)
	message.before = append(protowire.AppendVarint(head, uint64(length)), first...)
	return message, nil
}

// valid returns text that Protobuf takes: what is no UTF-8 becomes U+FFFD, as in the JSON that a webhook gets. A client
// that writes such bytes must not keep its request from being judged.
func valid(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	return string([]rune(text))
}

func allValid(texts []string) []string {
	if !slices.ContainsFunc(texts, func(text string) bool { return !utf8.ValidString(text) }) {
		return texts
	}
	all := make([]string, len(texts))
	for n, text := range texts {
		all[n] = valid(text)
	}
	return all
}

// encode returns an object in JSON, which needs no space behind it for a line's end; nil if there is none.
func encode(object runtime.Object) ([]byte, error) {
	if object == nil {
		return nil, nil
	}
	var buffer bytes.Buffer
	if err := objectEncoder.Encode(object, &buffer); err != nil {
		return nil, err
	}
	return bytes.TrimRight(buffer.Bytes(), "\n"), nil
}

// hasProtobuf reports whether an object, if there is one, has an encoding in protobuf, with its metadata: one of a built-in
// type has, a custom resource has not.
func hasProtobuf(object runtime.Object) bool {
	if object == nil {
		return true
	}
	_, isProtobuf := object.(runtime.ProtobufMarshaller)
	_, hasMetadata := object.(metav1.ObjectMetaAccessor)
	return isProtobuf && hasMetadata
}

// encodeProtobuf returns an object in Kubernetes' protobuf envelope; nil if there is none.
func encodeProtobuf(object runtime.Object) ([]byte, error) {
	if object == nil {
		return nil, nil
	}
	allocator := runtime.AllocatorPool.Get().(*runtime.Allocator)
	defer runtime.AllocatorPool.Put(allocator)
	var buffer bytes.Buffer
	if err := protobufEncoder.EncodeWithAllocator(object, &buffer, allocator); err != nil {
		return nil, err
	}
	return buffer.Bytes(), nil
}

// rawHead is what stands before the bytes of a RawExtension.
func rawHead(raw []byte) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, fieldRaw, protowire.BytesType), uint64(len(raw)))
}

// extensionHead is what stands before the bytes of an object; nothing if there is none.
func extensionHead(number protowire.Number, raw []byte) []byte {
	if raw == nil {
		return nil
	}
	inner := rawHead(raw)
	head := protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.BytesType), uint64(len(inner)+len(raw)))
	return append(head, inner...)
}

func kindMessage(kind schema.GroupVersionKind) []byte {
	bytes, _ := (&metav1.GroupVersionKind{Group: kind.Group, Version: kind.Version, Kind: kind.Kind}).Marshal()
	return bytes
}

func resourceMessage(resource schema.GroupVersionResource) []byte {
	bytes, _ := (&metav1.GroupVersionResource{Group: resource.Group, Version: resource.Version, Resource: resource.Resource}).Marshal()
	return bytes
}

// labelsMessage encodes gatepost.v1.NamespaceLabels.
func labelsMessage(labels map[string]string) []byte {
	message := []byte{}
	for key, value := range labels {
		entry := protowire.AppendString(protowire.AppendTag(nil, fieldMapKey, protowire.BytesType), key)
		entry = protowire.AppendString(protowire.AppendTag(entry, fieldMapValue, protowire.BytesType), value)
		message = protowire.AppendBytes(protowire.AppendTag(message, fieldMapEntry, protowire.BytesType), entry)
	}
	return message
}

// len is the length of the message.
func (m *message) len() int {
	return len(m.before) + len(m.objectHead) + len(m.object) + len(m.oldObjectHead) + len(m.oldObject) + len(m.after)
}

// buffers are the message in order, each part where it lies.
func (m *message) buffers() mem.BufferSlice {
	var buffers mem.BufferSlice
	for _, part := range [][]byte{m.before, m.objectHead, m.object, m.oldObjectHead, m.oldObject, m.after} {
		if len(part) > 0 {
			buffers = append(buffers, mem.SliceBuffer(part))
		}
	}
	return buffers
}
