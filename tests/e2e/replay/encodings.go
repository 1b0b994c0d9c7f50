package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// encoded is the call with this body, as a client of Kubernetes may write it.
func encoded(call call, body object, encoding string) call {
	switch encoding {
	case "YAML":
		call.contentType = "application/yaml"
		call.body = yaml(map[string]any(body), "")
	case "protobuf":
		call.contentType = "application/vnd.kubernetes.protobuf"
		call.body = protobuf(body)
	default:
		call.contentType = "application/json"
		text, _ := json.Marshal(body)
		call.body = string(text)
	}
	return call
}

// yaml is the object in block style; every scalar is in JSON, which YAML takes.
func yaml(value any, indent string) string {
	switch value := value.(type) {
	case map[string]any:
		var text strings.Builder
		for _, key := range slices.Sorted(maps.Keys(value)) {
			name, _ := json.Marshal(key)
			below := yaml(value[key], indent+"  ")
			if !strings.HasPrefix(below, "\n") {
				below = " " + below
			}
			fmt.Fprintf(&text, "\n%s%s:%s", indent, name, below)
		}
		return text.String()
	default:
		text, _ := json.Marshal(value)
		return string(text)
	}
}

// protobuf is a ConfigMap or DeleteOptions in Kubernetes' envelope; the numbers are those of its generated.proto.
func protobuf(body object) string {
	var raw []byte
	if policy, ok := body["propagationPolicy"].(string); ok {
		raw = field(raw, 4, []byte(policy))
	}
	if metadata, ok := body["metadata"].(map[string]any); ok {
		meta := field(nil, 1, []byte(metadata["name"].(string)))
		meta = entries(meta, 11, metadata["labels"])
		meta = entries(meta, 12, metadata["annotations"])
		raw = field(raw, 1, meta)
	}
	raw = entries(raw, 2, body["data"])
	kind := field(field(nil, 1, []byte(body["apiVersion"].(string))), 2, []byte(body["kind"].(string)))
	return "k8s\x00" + string(field(field(nil, 1, kind), 2, raw))
}

// field appends one with a length.
func field(to []byte, number int, value []byte) []byte {
	to = binary.AppendUvarint(to, uint64(number)<<3|2)
	to = binary.AppendUvarint(to, uint64(len(value)))
	return append(to, value...)
}

// entries appends a map of strings.
func entries(to []byte, number int, value any) []byte {
	values, _ := value.(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(values)) {
		to = field(to, number, field(field(nil, 1, []byte(key)), 2, []byte(values[key].(string))))
	}
	return to
}
