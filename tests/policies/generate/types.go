package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/schemaconv"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
)

// types writes how objects of the built-in kinds are merged, as kube-apiserver concludes it from its OpenAPI documents.
// `crates/policy/src/schema.rs` has the format.
func types() {
	table := table{named: map[string]smd.Atom{}, models: map[string]*spec.Schema{}, roots: map[string]string{}, class: map[string]int{}}
	resources := map[string][]string{}
	for path, document := range documents() {
		text, err := document.Schema(runtime.ContentTypeJSON)
		must(err)
		var parsed spec3.OpenAPI
		must(json.Unmarshal(text, &parsed))
		converted, err := schemaconv.ToSchemaFromOpenAPI(parsed.Components.Schemas, false)
		must(err)
		for _, one := range converted.Types {
			table.named[one.Name] = one.Atom
		}
		maps.Copy(table.models, parsed.Components.Schemas)
		for name, model := range parsed.Components.Schemas {
			var kinds []schema.GroupVersionKind
			must(model.Extensions.GetObject("x-kubernetes-group-version-kind", &kinds))
			// Options and the like belong to every group. Lists are not admitted.
			if len(kinds) == 1 && !strings.HasSuffix(kinds[0].Kind, "List") {
				table.roots[kinds[0].GroupVersion().String()+"/"+kinds[0].Kind] = name
			}
		}
		version := strings.TrimPrefix(strings.TrimPrefix(path, "apis/"), "api/")
		resources[version] = append(resources[version], writable(text)...)
	}
	table.classify()
	var out bytes.Buffer
	for version, kinds := range inOrder(resources) {
		var known []string
		for _, one := range kinds {
			resource, kind, _ := strings.Cut(one, " ")
			if _, ok := table.roots[kind]; ok {
				known = append(known, resource)
			}
		}
		if slices.Sort(known); len(known) > 0 {
			fmt.Fprintf(&out, "@%s %s\n", version, strings.Join(slices.Compact(known), " "))
		}
	}
	out.WriteString(table.String())
	must(os.WriteFile("../../../crates/policy/src/schema/types.txt", out.Bytes(), 0o644))
}

// writable returns the resources that can be created or updated, each with its kind.
func writable(document []byte) (resources []string) {
	var parsed struct {
		Paths map[string]map[string]json.RawMessage
	}
	must(json.Unmarshal(document, &parsed))
	for path, operations := range parsed.Paths {
		parts := strings.Split(strings.TrimPrefix(path, "/"), "/")[2:]
		if strings.HasPrefix(path, "/apis/") {
			parts = parts[min(1, len(parts)):]
		}
		if len(parts) > 2 && parts[0] == "namespaces" && parts[1] == "{namespace}" {
			parts = parts[2:]
		}
		parts = slices.DeleteFunc(parts, func(part string) bool { return part == "{name}" })
		for _, method := range []string{"post", "put"} {
			var operation struct {
				Action string                  `json:"x-kubernetes-action"`
				Kind   schema.GroupVersionKind `json:"x-kubernetes-group-version-kind"`
			}
			if text, ok := operations[method]; ok {
				must(json.Unmarshal(text, &operation))
				kind := operation.Kind.GroupVersion().String() + "/" + operation.Kind.Kind
				if operation.Action == "post" || operation.Action == "put" {
					resources = append(resources, strings.Join(parts, "/")+" "+kind)
				}
			}
		}
	}
	return resources
}

// table has the types that objects of the roots contain. Types that merge alike are one class.
type table struct {
	named map[string]smd.Atom
	// models have the formats of numbers.
	models map[string]*spec.Schema
	// roots are the names of types by kind.
	roots map[string]string
	class map[string]int
	lines []string
}

func (t *table) classify() {
	reached := slices.Sorted(maps.Values(t.roots))
	for at := 0; at < len(reached); at++ {
		for _, field := range t.fields(reached[at]) {
			t.reference(field.Type, func(name string) string {
				if !slices.Contains(reached, name) {
					reached = append(reached, name)
				}
				return ""
			})
		}
	}
	slices.Sort(reached)
	reached = slices.Compact(reached)
	kinds := map[string][]string{}
	for kind, name := range t.roots {
		kinds[name] = append(kinds[name], kind)
	}
	// Types are alike until their lines differ.
	for {
		lines, next := []string{}, map[string]int{}
		numbers := map[string]int{}
		for _, name := range reached {
			line := t.line(name)
			number, ok := numbers[line]
			if !ok {
				number = len(lines)
				numbers[line] = number
				lines = append(lines, line)
			}
			next[name] = number
		}
		if maps.Equal(next, t.class) {
			for kind, name := range inOrder(t.roots) {
				lines[next[name]] += " =" + kind
			}
			t.lines = lines
			return
		}
		t.class = next
	}
}

func (t *table) fields(name string) []smd.StructField {
	if of := t.named[name].Map; of != nil {
		return of.Fields
	}
	return nil
}

// line has the fields of a type by their types.
func (t *table) line(name string) string {
	byType := map[string][]string{}
	for _, field := range t.fields(name) {
		of := t.reference(field.Type, func(name string) string { return fmt.Sprint(t.class[name]) })
		if rest, ok := strings.CutSuffix(of, string(smd.Numeric)[:1]); ok {
			of = rest + t.number(name, field.Name)
		}
		byType[of] = append(byType[of], field.Name)
	}
	var parts []string
	if t.named[name].Map.ElementRelationship == smd.Atomic {
		parts = append(parts, "!")
	}
	for of, names := range inOrder(byType) {
		slices.Sort(names)
		parts = append(parts, of+":"+strings.Join(names, ","))
	}
	return strings.Join(parts, " ")
}

// number returns the type of the number that a field has, or its items.
func (t *table) number(name, field string) string {
	model := t.models[name].Properties[field]
	for {
		switch {
		case model.Items != nil:
			model = *model.Items.Schema
			continue
		case model.AdditionalProperties != nil:
			model = *model.AdditionalProperties.Schema
			continue
		case slices.Equal(model.Type, spec.StringOrArray{"number"}):
			return "n"
		case model.Format == "int32":
			return "i"
		case model.Format == "int64":
			return "l"
		}
		panic(fmt.Sprintf("%s.%s is no number: %v %s", name, field, model.Type, model.Format))
	}
}

// reference writes a type; number returns the class of a struct.
func (t *table) reference(reference smd.TypeRef, number func(name string) string) string {
	atom, atomic := reference.Inlined, ""
	if reference.NamedType != nil {
		atom = t.named[*reference.NamedType]
	}
	relationship := reference.ElementRelationship
	if relationship != nil && *relationship == smd.Atomic {
		atomic = "!"
	}
	switch {
	case atom.Scalar != nil && atom.Map != nil && atom.Map.ElementRelationship == smd.Atomic:
		return "a"
	case atom.Scalar != nil && atom.Map != nil:
		return "d"
	case atom.Scalar != nil:
		return string(*atom.Scalar)[:1]
	case atom.List != nil:
		return t.list(atom.List) + t.reference(atom.List.ElementType, number)
	case len(atom.Map.Fields) > 0:
		return atomic + number(*reference.NamedType)
	case atom.Map.ElementRelationship == smd.Atomic || atomic != "":
		return "!{" + t.reference(atom.Map.ElementType, number)
	default:
		return "{" + t.reference(atom.Map.ElementType, number)
	}
}

func (t *table) list(list *smd.List) string {
	switch {
	case list.ElementRelationship == smd.Atomic:
		return "["
	case len(list.Keys) == 0:
		return "+"
	}
	var keys []string
	for _, key := range slices.Sorted(slices.Values(list.Keys)) {
		for _, field := range t.fields(*list.ElementType.NamedType) {
			if field.Name == key && field.Default != nil {
				key += "=" + compact(field.Default)
				break
			}
		}
		keys = append(keys, key)
	}
	return "(" + strings.Join(keys, ";") + ")"
}

func (t *table) String() string {
	return strings.Join(t.lines, "\n") + "\n"
}

func inOrder[V any](values map[string]V) func(yield func(string, V) bool) {
	return func(yield func(string, V) bool) {
		for _, key := range slices.Sorted(maps.Keys(values)) {
			if !yield(key, values[key]) {
				return
			}
		}
	}
}
