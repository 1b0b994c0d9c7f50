package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install"
	"k8s.io/kubernetes/pkg/apis/admissionregistration/validation"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/authorization/install"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/events/install"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"
	"sigs.k8s.io/yaml"
)

// Case is the last document of a file of cases.
type Case struct {
	Kind      string     `json:"kind"`
	Request   Request    `json:"request"`
	Access    []Access   `json:"access,omitempty"`
	Resources []Resource `json:"resources,omitempty"`
	// Stored says that the policies are in etcd already: they are not validated.
	Stored bool `json:"stored,omitempty"`
	// Defaults says that objects get the defaults of built-in kinds, as in kube-apiserver.
	Defaults bool `json:"defaults,omitempty"`
	// Custom says that the objects are custom resources, though their kinds have the names of built-in ones.
	Custom bool `json:"custom,omitempty"`
	// MissingNamespace says that the namespace of the request does not exist.
	MissingNamespace bool `json:"missingNamespace,omitempty"`

	policies   []runtime.Object
	bindings   []runtime.Object
	namespaces []*unstructured.Unstructured
	params     []*unstructured.Unstructured
	refused    map[string][]string
}

// Request is what a client asked of kube-apiserver. Resource is GROUP/VERSION/RESOURCE, without the group in the core
// group; Kind is likewise, and is needed only of subresources.
type Request struct {
	Operation   string                    `json:"operation"`
	Resource    string                    `json:"resource"`
	Subresource string                    `json:"subresource,omitempty"`
	Kind        string                    `json:"kind,omitempty"`
	Name        string                    `json:"name,omitempty"`
	Namespace   string                    `json:"namespace,omitempty"`
	User        authenticationv1.UserInfo `json:"user,omitempty"`
	Object      json.RawMessage           `json:"object,omitempty"`
	OldObject   json.RawMessage           `json:"oldObject,omitempty"`
	Options     map[string]any            `json:"options,omitempty"`
	DryRun      bool                      `json:"dryRun,omitempty"`
}

// Access is what the authorizer answers a check whose attributes are equal to all that are given. The first of a case
// counts; without any the answer is no opinion.
type Access struct {
	User        *string `json:"user,omitempty"`
	Verb        *string `json:"verb,omitempty"`
	Group       *string `json:"group,omitempty"`
	Resource    *string `json:"resource,omitempty"`
	Subresource *string `json:"subresource,omitempty"`
	Namespace   *string `json:"namespace,omitempty"`
	Name        *string `json:"name,omitempty"`
	Path        *string `json:"path,omitempty"`
	Decision    string  `json:"decision"`
	Reason      string  `json:"reason,omitempty"`
	Error       string  `json:"error,omitempty"`
}

// Resource is one of the apiserver's besides those of the built-in kinds. Those of the same identity are equivalent.
type Resource struct {
	Resource    string `json:"resource"`
	Subresource string `json:"subresource,omitempty"`
	Kind        string `json:"kind"`
	Namespaced  bool   `json:"namespaced,omitempty"`
	Identity    string `json:"identity,omitempty"`
	// Schema is that of its CustomResourceDefinition; absent, any field may be there, and lists are atomic.
	Schema json.RawMessage `json:"schema,omitempty"`
	// WithoutSchema says that the apiserver does not know the schema yet.
	WithoutSchema bool `json:"withoutSchema,omitempty"`
}

var strict = serializer.NewCodecFactory(legacyscheme.Scheme, serializer.EnableStrict)

func readCase(text []byte) *Case {
	one := &Case{refused: map[string][]string{}}
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		must(err)
		var object map[string]any
		must(yaml.Unmarshal(document, &object))
		if len(object) == 0 {
			continue
		}
		if object["kind"] == "Case" {
			must(yaml.UnmarshalStrict(document, one))
			continue
		}
		data := integers(document)
		switch kind := object["kind"].(string); {
		case strings.HasSuffix(kind, "AdmissionPolicy"), strings.HasSuffix(kind, "AdmissionPolicyBinding"):
			one.addPolicy(kind, data)
		case kind == "Namespace":
			one.namespaces = append(one.namespaces, &unstructured.Unstructured{Object: data})
		default:
			one.params = append(one.params, &unstructured.Unstructured{Object: data})
		}
	}
	if one.Kind != "Case" {
		panic("the last document is no Case")
	}
	one.addNamespace()
	return one
}

// addPolicy decodes, defaults and validates as kube-apiserver does when such an object is created.
func (c *Case) addPolicy(kind string, data map[string]any) {
	text := []byte(compact(data))
	internal, err := runtime.Decode(strict.UniversalDecoder(), text)
	must(err)
	var faults field.ErrorList
	var add *[]runtime.Object
	switch internal := internal.(type) {
	case *admissionregistration.ValidatingAdmissionPolicy:
		add, faults = &c.policies, validation.ValidateValidatingAdmissionPolicy(internal)
	case *admissionregistration.ValidatingAdmissionPolicyBinding:
		add, faults = &c.bindings, validation.ValidateValidatingAdmissionPolicyBinding(internal)
	case *admissionregistration.MutatingAdmissionPolicy:
		add, faults = &c.policies, validation.ValidateMutatingAdmissionPolicy(internal)
	case *admissionregistration.MutatingAdmissionPolicyBinding:
		add, faults = &c.bindings, validation.ValidateMutatingAdmissionPolicyBinding(internal)
	default:
		panic(fmt.Sprintf("%T is no policy", internal))
	}
	versioned, err := legacyscheme.Scheme.ConvertToVersion(internal, admissionregistrationv1.SchemeGroupVersion)
	must(err)
	accessor, err := meta.Accessor(versioned)
	must(err)
	accessor.SetResourceVersion("1")
	*add = append(*add, versioned)
	for _, fault := range faults {
		key := kind + "/" + accessor.GetName()
		c.refused[key] = append(c.refused[key], fault.Error())
	}
}

func (c *Case) addNamespace() {
	name := c.Request.Namespace
	if name == "" || c.MissingNamespace {
		return
	}
	for _, namespace := range c.namespaces {
		if namespace.GetName() == name {
			return
		}
	}
	namespace := &unstructured.Unstructured{}
	namespace.SetAPIVersion("v1")
	namespace.SetKind("Namespace")
	namespace.SetName(name)
	namespace.SetLabels(map[string]string{"kubernetes.io/metadata.name": name})
	c.namespaces = append(c.namespaces, namespace)
}

// mapper knows the built-in kinds and the resources of the case.
func (c *Case) mapper() meta.RESTMapper {
	own := meta.NewDefaultRESTMapper(nil)
	for _, resource := range c.Resources {
		if resource.Subresource != "" {
			continue
		}
		var scope meta.RESTScope = meta.RESTScopeRoot
		if resource.Namespaced {
			scope = meta.RESTScopeNamespace
		}
		gvr := parseResource(resource.Resource)
		own.AddSpecific(parseKind(resource.Kind), gvr, gvr, scope)
	}
	return meta.FirstHitRESTMapper{MultiRESTMapper: meta.MultiRESTMapper{
		own, testrestmapper.TestOnlyStaticRESTMapper(clientgoscheme.Scheme),
	}}
}

// equivalents is the apiserver's registry of equivalent resources.
func (c *Case) equivalents() runtime.EquivalentResourceMapper {
	identities := map[schema.GroupResource]string{}
	for _, resource := range c.Resources {
		if resource.Identity != "" {
			identities[parseResource(resource.Resource).GroupResource()] = resource.Identity
		}
	}
	registry := runtime.NewEquivalentResourceRegistryWithIdentity(func(resource schema.GroupResource) string {
		return identities[resource]
	})
	for _, resource := range c.Resources {
		registry.RegisterKindFor(parseResource(resource.Resource), resource.Subresource, parseKind(resource.Kind))
	}
	return registry
}

func (c *Case) kind() schema.GroupVersionKind {
	if c.Request.Kind != "" {
		return parseKind(c.Request.Kind)
	}
	kind, err := c.mapper().KindFor(parseResource(c.Request.Resource))
	must(err)
	return kind
}

func parseResource(text string) schema.GroupVersionResource {
	group, version, resource := parse(text)
	return schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
}

func parseKind(text string) schema.GroupVersionKind {
	if text == "" {
		return schema.GroupVersionKind{}
	}
	group, version, kind := parse(text)
	return schema.GroupVersionKind{Group: group, Version: version, Kind: kind}
}

func parse(text string) (group, version, name string) {
	parts := strings.Split(text, "/")
	switch len(parts) {
	case 2:
		return "", parts[0], parts[1]
	case 3:
		return parts[0], parts[1], parts[2]
	default:
		panic(text + " is not GROUP/VERSION/NAME")
	}
}

// object is of the apiserver's own type, or unstructured if the kind is none of the built-in ones.
func (c *Case) object(text json.RawMessage, kind schema.GroupVersionKind) runtime.Object {
	if text == nil {
		return nil
	}
	var data map[string]any
	must(utiljson.Unmarshal(text, &data))
	data["apiVersion"], data["kind"] = kind.GroupVersion().String(), kind.Kind
	if !c.typed(kind) {
		return &unstructured.Unstructured{Object: data}
	}
	object, _, err := strict.UniversalDeserializer().Decode([]byte(compact(data)), nil, nil)
	must(err)
	if c.Defaults {
		legacyscheme.Scheme.Default(object)
	}
	internal := schema.GroupVersion{Group: kind.Group, Version: runtime.APIVersionInternal}
	object, err = legacyscheme.Scheme.ConvertToVersion(object, internal)
	must(err)
	return object
}

func (c *Case) options() runtime.Object {
	var options runtime.Object
	switch c.Request.Operation {
	case "CREATE":
		options = &metav1.CreateOptions{}
	case "UPDATE":
		options = &metav1.UpdateOptions{}
	case "DELETE":
		options = &metav1.DeleteOptions{}
	default:
		return nil
	}
	must(json.Unmarshal([]byte(compact(c.Request.Options)), options))
	name := strings.TrimPrefix(fmt.Sprintf("%T", options), "*v1.")
	options.GetObjectKind().SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind(name))
	return options
}

// integers reads YAML so that whole numbers are int64, as in unstructured objects.
func integers(document []byte) map[string]any {
	text, err := yaml.YAMLToJSON(document)
	must(err)
	var object unstructured.Unstructured
	must(object.UnmarshalJSON(text))
	return object.Object
}
