package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	kubeyaml "sigs.k8s.io/yaml"
)

// policyCase is a case of tests/policies, moved into namespaces and names of its own, so that all cases can be in force
// at once: the namespace of its request is NAME, other namespaces and all policies and bindings are NAME-SOMETHING.
type policyCase struct {
	name string
	// home is the namespace of the request in tests/policies.
	home string
	// policies are policies and bindings, which are in force in the namespace of the case only.
	policies []object
	// cluster is what else has to be there: namespaces first, then params.
	cluster []object
	access  []access
	request policyRequest
	// decision is what the code of kube-apiserver's plugins makes of the request.
	decision policyDecision
	// isOther: a cluster decides otherwise, as the request is not quite the same there.
	isOther bool
}

// access is what the authorizer answers a check with these attributes.
type access struct {
	User, Verb, Group, Resource, Subresource, Namespace, Name, Path, Decision string
}

// policyRequest is the request of an AdmissionReview.
type policyRequest struct {
	Resource    struct{ Group, Version, Resource string }
	SubResource string
	Name        string
	Namespace   string
	Operation   string
	UserInfo    struct {
		Username, UID string
		Groups        []string
		Extra         map[string][]string
	}
	Object, OldObject object
}

type policyDecision struct {
	Allowed bool
	Status  struct {
		Code    int
		Message string
	}
	Warnings []string
	// Object is there if policies have changed it.
	Object object
}

// readPolicyCases reads those cases of a folder that the list names, one a line. Before a name, ~ sets isOther, and #
// begins a comment.
func readPolicyCases(folder, list string) ([]policyCase, error) {
	names, err := os.ReadFile(list)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(folder, "answers.json"))
	if err != nil {
		return nil, err
	}
	var answers map[string]struct {
		Review   struct{ Request policyRequest }
		Decision *policyDecision
	}
	if err := decode(text, &answers); err != nil {
		return nil, fmt.Errorf("answers.json: %w", err)
	}
	var all []policyCase
	for name := range strings.Lines(string(names)) {
		if name = strings.TrimSpace(name); name == "" || name[0] == '#' {
			continue
		}
		name, isOther := strings.CutPrefix(name, "~")
		answer := answers[name]
		if answer.Decision == nil {
			return nil, fmt.Errorf("%s: answers.json has no decision", name)
		}
		request := answer.Review.Request
		one := policyCase{name: name, home: request.Namespace, request: request, decision: *answer.Decision, isOther: isOther}
		if err := one.read(filepath.Join(folder, "cases", name+".yaml")); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, one)
	}
	return all, nil
}

// decode keeps numbers as they are written.
func decode(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	return decoder.Decode(into)
}

func (c *policyCase) read(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	namespaces := map[string]bool{}
	var params []object
	mention := func(moved string) {
		if moved != "" && !namespaces[moved] {
			namespaces[moved] = true
			c.cluster = append(c.cluster, namespace(moved))
		}
	}
	for part := range strings.SplitSeq(string(text), "\n---\n") {
		converted, err := kubeyaml.YAMLToJSON([]byte(part))
		if err != nil {
			return err
		}
		var document object
		if err := decode(converted, &document); err != nil {
			return err
		}
		switch kind, _ := document["kind"].(string); {
		case kind == "Case":
			var last struct{ Access []access }
			if err := decode(converted, &last); err != nil {
				return err
			}
			c.access = last.Access
		case kind == "Namespace":
			c.move(document, "metadata", "name")
			c.moveSelectors(document)
			namespaces[textAt(document, "metadata", "name")] = true
			c.cluster = append(c.cluster, document)
		case strings.Contains(kind, "AdmissionPolicy"):
			c.scope(document)
			c.policies = append(c.policies, document)
		default:
			c.move(document, "metadata", "namespace")
			params = append(params, document)
		}
	}
	for _, param := range params {
		mention(textAt(param, "metadata", "namespace"))
	}
	mention(c.name)
	c.cluster = append(c.cluster, params...)

	c.request.Namespace = c.moved(c.request.Namespace)
	for _, one := range []object{c.request.Object, c.request.OldObject} {
		c.move(one, "metadata", "namespace")
	}
	if len(c.access) > 0 {
		// Nobody else has its rights.
		c.request.UserInfo.Username = c.name + "-" + c.request.UserInfo.Username
	}
	return nil
}

// moved is the name in the cluster of a namespace.
func (c *policyCase) moved(namespace string) string {
	switch namespace {
	case "":
		return ""
	case c.home:
		return c.name
	default:
		return c.name + "-" + namespace
	}
}

// original undoes moved, and the names of scope, in a text that a client reads.
func (c *policyCase) original(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, c.name+"-", ""), c.name, c.home)
}

// move moves the namespace at this path, if there is one.
func (c *policyCase) move(document object, path ...string) {
	if parent, here := mapAt(document, path[:len(path)-1]...); here {
		if namespace, _ := parent[path[len(path)-1]].(string); namespace != "" {
			parent[path[len(path)-1]] = c.moved(namespace)
		}
	}
}

const nameLabel = "kubernetes.io/metadata.name"

// moveSelectors moves the namespaces that labels and selectors name.
func (c *policyCase) moveSelectors(value any) {
	switch value := value.(type) {
	case object:
		c.moveSelectors(map[string]any(value))
	case map[string]any:
		if namespace, _ := value[nameLabel].(string); namespace != "" {
			value[nameLabel] = c.moved(namespace)
		}
		if names, _ := value["values"].([]any); value["key"] == nameLabel {
			for i, namespace := range names {
				if namespace, _ := namespace.(string); namespace != "" {
					names[i] = c.moved(namespace)
				}
			}
		}
		for _, one := range value {
			c.moveSelectors(one)
		}
	case []any:
		for _, one := range value {
			c.moveSelectors(one)
		}
	}
}

// scope gives a policy or a binding a name of its own, and leaves the policy in force in the namespace of the case only.
func (c *policyCase) scope(document object) {
	metadata, _ := mapAt(document, "metadata")
	metadata["name"] = c.name + "-" + textAt(document, "metadata", "name")
	labels, here := metadata["labels"].(map[string]any)
	if !here {
		labels = map[string]any{}
		metadata["labels"] = labels
	}
	labels["e2e"] = "policies"
	c.moveSelectors(document["spec"])
	c.move(document, "spec", "paramRef", "namespace")
	spec, _ := mapAt(document, "spec")
	if policy, _ := spec["policyName"].(string); policy != "" {
		spec["policyName"] = c.name + "-" + policy
		return
	}
	constraints, here := mapAt(document, "spec", "matchConstraints")
	if !here {
		return
	}
	selector, here := constraints["namespaceSelector"].(map[string]any)
	if !here {
		selector = map[string]any{}
		constraints["namespaceSelector"] = selector
	}
	expressions, _ := selector["matchExpressions"].([]any)
	selector["matchExpressions"] = append(expressions,
		map[string]any{"key": nameLabel, "operator": "In", "values": []any{c.name}})
}

// rights are the objects that let the user do what the case has the authorizer allow, and send the request.
func (c *policyCase) rights() []object {
	request := c.request
	resource := request.Resource.Resource
	if request.SubResource != "" {
		resource += "/" + request.SubResource
	}
	rights := []object{
		newObject(rbac, "Role", "sends").with("rules", []any{rule("*", request.Resource.Group, resource)}),
		bindingOf("Role", "sends", request.UserInfo.Username),
	}
	for _, one := range rights {
		one["metadata"].(map[string]any)["namespace"] = c.name
	}
	for i, one := range c.access {
		if one.Decision != "allow" {
			continue
		}
		user, name := one.User, fmt.Sprintf("%s-%d", c.name, i)
		if user == "" {
			user = request.UserInfo.Username
		}
		resource := rule(orAll(one.Verb, "*"), orAll(one.Group, "*"), orAll(one.Resource, "*"))
		if one.Subresource != "" {
			resource["resources"] = []any{orAll(one.Resource, "*") + "/" + one.Subresource}
		}
		if one.Name != "" {
			resource["resourceNames"] = []any{one.Name}
		}
		rules := []any{resource}
		if one.Path != "" || one.Resource == "" && one.Group == "" && one.Verb == "" {
			rules = append(rules, map[string]any{"verbs": []any{orAll(one.Verb, "*")},
				"nonResourceURLs": []any{orAll(one.Path, "*")}})
		}
		if one.Path != "" {
			rules = rules[1:]
		}
		ofCluster := []object{newObject(rbac, "ClusterRole", name).with("rules", rules), bindingOf("ClusterRole", name, user)}
		for _, one := range ofCluster {
			one["metadata"].(map[string]any)["labels"] = map[string]any{"e2e": "policies"}
		}
		rights = append(rights, ofCluster...)
	}
	return rights
}

const rbac = "rbac.authorization.k8s.io/v1"

func rule(verb, group, resource string) map[string]any {
	return map[string]any{"verbs": []any{verb}, "apiGroups": []any{group}, "resources": []any{resource}}
}

func bindingOf(kind, name, user string) object {
	return newObject(rbac, kind+"Binding", name).
		with("roleRef", map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}).
		with("subjects", []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}})
}

func orAll(text, all string) string {
	if text == "" {
		return all
	}
	return text
}

// before is what has to be stored before the request can be sent, or nil.
func (c *policyCase) before() object {
	request := c.request
	switch {
	case request.SubResource == "scale":
		replicas, _ := mapAt(request.OldObject, "spec")
		before := deployment(request.Name)
		before["spec"].(map[string]any)["replicas"] = replicas["replicas"]
		return before
	case request.SubResource == "exec" || request.SubResource == "eviction":
		return pod(request.Name)
	default:
		return request.OldObject
	}
}

// collection is the path of the resource.
func (c *policyCase) collection() string {
	resource := c.request.Resource
	if resource.Group == "" {
		return fmt.Sprintf("/api/%s/namespaces/%s/%s", resource.Version, c.name, resource.Resource)
	}
	return fmt.Sprintf("/apis/%s/%s/namespaces/%s/%s", resource.Group, resource.Version, c.name, resource.Resource)
}

// call is the request as a client sends it: a dry run, so that it can be sent again.
func (c *policyCase) call() call {
	request := c.request
	path := c.collection()
	sent := call{method: "POST", body: request.Object, values: map[string][]string{
		"Impersonate-User": {request.UserInfo.Username},
	}}
	if request.Operation != "CREATE" || request.SubResource != "" {
		path += "/" + request.Name
	}
	if request.SubResource != "" {
		path += "/" + request.SubResource
	}
	switch request.Operation {
	case "UPDATE":
		sent.method = "PUT"
	case "DELETE":
		sent.method, sent.body = "DELETE", nil
	case "CONNECT":
		sent.body = nil
		var options []string
		for key, value := range request.Object {
			switch value := value.(type) {
			case []any:
				for _, one := range value {
					options = append(options, fmt.Sprintf("%s=%v", key, one))
				}
			default:
				if key != "kind" && key != "apiVersion" {
					options = append(options, fmt.Sprintf("%s=%v", key, value))
				}
			}
		}
		slices.Sort(options)
		path += "?" + strings.Join(options, "&")
	}
	if request.Operation != "CONNECT" {
		path += dryRun
	}
	sent.path = path
	for _, group := range request.UserInfo.Groups {
		sent.values["Impersonate-Group"] = append(sent.values["Impersonate-Group"], group)
	}
	if request.UserInfo.UID != "" {
		sent.values["Impersonate-Uid"] = []string{request.UserInfo.UID}
	}
	for key, values := range request.UserInfo.Extra {
		sent.values["Impersonate-Extra-"+strings.ReplaceAll(key, "/", "%2F")] = values
	}
	return sent
}

// unlike is why the answer is another than that of the code of kube-apiserver's plugins; empty if it is not. It keeps a
// case from passing because something else than its policies has decided on both ways.
func (c *policyCase) unlike(got answer) string {
	switch {
	case c.request.Operation == "CONNECT" && c.decision.Allowed:
		// There is no node to connect to: what follows admission refuses it.
		if strings.Contains(got.status.Message, "denied request") || got.code != 400 {
			return fmt.Sprintf("%d %s, and not allowed", got.code, got.status.Message)
		}
		return ""
	case c.decision.Allowed && (got.code < 200 || got.code > 299):
		return fmt.Sprintf("%d %s, and not allowed", got.code, got.status.Message)
	case !c.decision.Allowed && got.code != c.decision.Status.Code:
		return fmt.Sprintf("%d %s, and not %d %s", got.code, got.status.Message, c.decision.Status.Code,
			c.decision.Status.Message)
	case !c.decision.Allowed && c.original(got.status.Message) != c.decision.Status.Message:
		return fmt.Sprintf("%q, and not %q", c.original(got.status.Message), c.decision.Status.Message)
	}
	var warnings []string
	for _, warning := range c.decision.Warnings {
		if !slices.Contains(warnings, warning) {
			warnings = append(warnings, warning)
		}
	}
	for _, warning := range warnings {
		quoted := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(warning)
		if !slices.ContainsFunc(got.warnings, func(one string) bool { return c.original(one) == `299 - "`+quoted+`"` }) {
			return fmt.Sprintf("no warning %q", warning)
		}
	}
	if c.decision.Object == nil {
		return ""
	}
	var result object
	if err := decode(got.text, &result); err != nil {
		return err.Error()
	}
	want := c.decision.Object
	c.move(want, "metadata", "namespace")
	leavesOf := leaves("", map[string]any(result))
	for _, leaf := range leaves("", map[string]any(want)) {
		// Fields without a value are an encoder's choice.
		if !strings.HasSuffix(leaf, "={}") && !strings.HasSuffix(leaf, "=null") && !slices.Contains(leavesOf, leaf) {
			return fmt.Sprintf("the object has no %s", leaf)
		}
	}
	return ""
}

func mapAt(document map[string]any, path ...string) (map[string]any, bool) {
	for _, step := range path {
		next, here := document[step].(map[string]any)
		if !here {
			return nil, false
		}
		document = next
	}
	return document, document != nil
}

func textAt(document object, path ...string) string {
	parent, _ := mapAt(document, path[:len(path)-1]...)
	text, _ := parent[path[len(path)-1]].(string)
	return text
}
