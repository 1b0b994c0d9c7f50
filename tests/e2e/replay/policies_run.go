package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	kubeyaml "sigs.k8s.io/yaml"
)

const (
	admission = "/apis/admissionregistration.k8s.io/v1/"
	// marks is where the markers are in force, and nothing else.
	marks = "e2e-policies"
)

// markers come after all other policies, and go last: kube-apiserver sees writes of one resource in their order, so that
// once they are in force, all are. They have no label of the other policies.
func markers() []object {
	match := map[string]any{
		"namespaceSelector": map[string]any{"matchLabels": map[string]any{nameLabel: marks}},
		"resourceRules": []any{map[string]any{"operations": []any{"CREATE"}, "apiGroups": []any{""},
			"apiVersions": []any{"v1"}, "resources": []any{"configmaps"}}},
	}
	const registration = "admissionregistration.k8s.io/v1"
	return []object{
		newObject(registration, "MutatingAdmissionPolicy", "zz-marker").with("spec", map[string]any{
			"matchConstraints": match, "reinvocationPolicy": "Never", "mutations": []any{map[string]any{
				"patchType":          "ApplyConfiguration",
				"applyConfiguration": map[string]any{"expression": `Object{data: {"marked": "yes"}}`},
			}},
		}),
		newObject(registration, "MutatingAdmissionPolicyBinding", "zz-marker").
			with("spec", map[string]any{"policyName": "zz-marker"}),
		newObject(registration, "ValidatingAdmissionPolicy", "zz-marker").with("spec", map[string]any{
			"matchConstraints": match,
			"validations":      []any{map[string]any{"expression": "object.metadata.name != 'denied'"}},
		}),
		newObject(registration, "ValidatingAdmissionPolicyBinding", "zz-marker").
			with("spec", map[string]any{"policyName": "zz-marker", "validationActions": []any{"Deny"}}),
	}
}

// policies does one step of policies.sh.
func policies(s *server, folder, list, out, step string) error {
	all, err := readPolicyCases(folder, list)
	if err != nil {
		return err
	}
	switch step {
	case "prepare":
		return preparePolicies(s, all)
	case "write":
		return writePolicies(all, out)
	case "apply":
		return applyPolicies(s, all)
	case "remove":
		return removePolicies(s)
	case "revoke":
		return revokeRights(s)
	case "await-none":
		return awaitPolicies(s, false)
	case "direct", "through":
		if err := awaitPolicies(s, true); err != nil {
			return err
		}
		return sendPolicyCases(s, all, out, step == "direct")
	default:
		return fmt.Errorf("there is no step %q of policies", step)
	}
}

// pathOf is the collection that an object of these kinds is created in.
func pathOf(o object) string {
	version, _ := o["apiVersion"].(string)
	kind, _ := o["kind"].(string)
	path := "/apis/" + version
	if !strings.Contains(version, "/") {
		path = "/api/" + version
	}
	if namespace := textAt(o, "metadata", "namespace"); namespace != "" {
		path += "/namespaces/" + namespace
	}
	plural := strings.ToLower(kind) + "s"
	if strings.HasSuffix(kind, "Policy") {
		plural = strings.TrimSuffix(plural, "ys") + "ies"
	}
	return path + "/" + plural
}

func (s *server) create(path string, o object) error {
	got, err := s.send(create(path, o))
	if err != nil {
		return err
	}
	if got.code != http.StatusCreated && got.code != http.StatusConflict {
		return fmt.Errorf("%s: %v: %d %s", path, textAt(o, "metadata", "name"), got.code, got.status.Message)
	}
	return nil
}

func (s *server) createAll(objects []object) error {
	for _, o := range objects {
		if err := s.create(pathOf(o), o); err != nil {
			return err
		}
	}
	return nil
}

// eachCase does something for cases, several at once, and names the case in errors.
func eachCase(all []policyCase, do func(*policyCase) error) error {
	errs, slots := make([]error, len(all)), make(chan struct{}, 8)
	var group sync.WaitGroup
	for i := range all {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			if err := do(&all[i]); err != nil {
				errs[i] = fmt.Errorf("%s: %w", all[i].name, err)
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// preparePolicies writes what has to be there before policies are in force.
func preparePolicies(s *server, all []policyCase) error {
	if err := s.create(namespaces, namespace(marks)); err != nil {
		return err
	}
	return eachCase(all, func(one *policyCase) error {
		if err := s.createAll(append(slices.Clone(one.cluster), one.rights()...)); err != nil {
			return err
		}
		if before := one.before(); before != nil {
			return s.create(one.collection(), before)
		}
		return nil
	})
}

// writePolicies writes the policies into a folder, a file for each case.
func writePolicies(all []policyCase, folder string) error {
	write := func(name string, documents []object) error {
		file, err := os.Create(filepath.Join(folder, name+".yaml"))
		if err != nil {
			return err
		}
		defer file.Close()
		for _, document := range documents {
			text, err := kubeyaml.Marshal(document)
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(file, "---\n%s", text); err != nil {
				return err
			}
		}
		return nil
	}
	for _, one := range all {
		if err := write(one.name, one.policies); err != nil {
			return err
		}
	}
	return write("zz-marker", markers())
}

func applyPolicies(s *server, all []policyCase) error {
	if err := eachCase(all, func(one *policyCase) error { return s.createAll(one.policies) }); err != nil {
		return err
	}
	return s.createAll(markers())
}

func removePolicies(s *server) error {
	for _, resource := range []string{"mutatingadmissionpolicies", "mutatingadmissionpolicybindings",
		"validatingadmissionpolicies", "validatingadmissionpolicybindings"} {
		for _, path := range []string{resource + labelled, resource + "/zz-marker"} {
			if err := s.remove(admission + path); err != nil {
				return err
			}
		}
	}
	return awaitPolicies(s, false)
}

// revokeRights removes what users were allowed in the whole cluster, which other trials do not expect.
func revokeRights(s *server) error {
	for _, resource := range []string{"clusterrolebindings", "clusterroles"} {
		if err := s.remove("/apis/" + rbac + "/" + resource + labelled); err != nil {
			return err
		}
	}
	return nil
}

// labelled selects the objects of the cases.
const labelled = "?labelSelector=e2e%3Dpolicies"

func (s *server) remove(path string) error {
	got, err := s.send(call{method: "DELETE", path: path})
	if err != nil {
		return err
	}
	if got.code != http.StatusOK {
		return fmt.Errorf("%s: %d %s", path, got.code, got.status.Message)
	}
	return nil
}

// awaitPolicies waits until the markers of both types are in force, or none is.
func awaitPolicies(s *server, inForce bool) error {
	path := "/api/v1/namespaces/" + marks + "/configmaps" + dryRun
	for until := time.Now().Add(60 * time.Second); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		denied, err := s.send(create(path, newObject("v1", "ConfigMap", "denied")))
		if err != nil {
			return err
		}
		marked, err := s.send(create(path, newObject("v1", "ConfigMap", "marked")))
		if err != nil {
			return err
		}
		isMarked := marked.code == http.StatusCreated && strings.Contains(string(marked.text), `"marked":"yes"`)
		isDenied := strings.Contains(denied.status.Message, "ValidatingAdmissionPolicy 'zz-marker'")
		isClean := marked.code == http.StatusCreated && denied.code == http.StatusCreated && !isMarked
		if inForce && isMarked && isDenied || !inForce && isClean {
			return nil
		}
	}
	return fmt.Errorf("after 60 s the markers are not yet in force, or still (wanted: %t)", inForce)
}

// sendPolicyCases writes the outcome of each case. Those that kube-apiserver's own policies decide must be decided as
// tests/policies says.
func sendPolicyCases(s *server, all []policyCase, out string, isDirect bool) error {
	audit, err := openAudit(s.folder)
	if err != nil {
		return err
	}
	file, err := os.Create(out)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := json.NewEncoder(file)
	lines.SetEscapeHTML(false)
	// An event comes some time after its answer: so first all requests, then all events.
	answers, unlike := make([]answer, len(all)), 0
	for i := range all {
		one := &all[i]
		if answers[i], err = s.send(one.call()); err != nil {
			return fmt.Errorf("%s: %w", one.name, err)
		}
		if !isDirect || one.isOther {
			continue
		}
		if why := one.unlike(answers[i]); why != "" {
			fmt.Fprintf(os.Stderr, "%s: %s\n", one.name, shorten(why))
			unlike++
		}
	}
	for i, got := range answers {
		name := all[i].name
		annotations, err := audit.annotations(got.audit)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		outcome := newOutcome(name, got, annotations, nil)
		if outcome.Fields["object"], err = objectLines(got); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := lines.Encode(outcome); err != nil {
			return err
		}
	}
	if unlike > 0 {
		return fmt.Errorf("kube-apiserver decides %d of %d cases otherwise than tests/policies says", unlike, len(all))
	}
	return nil
}

// objectLines are the leaves of the object in the answer, less what is different each time.
func objectLines(got answer) ([]string, error) {
	if got.status.Status != "" {
		return nil, nil
	}
	var o object
	if err := decode(got.text, &o); err != nil {
		return nil, err
	}
	metadata, _ := mapAt(o, "metadata")
	for _, key := range []string{"uid", "resourceVersion", "creationTimestamp"} {
		delete(metadata, key)
	}
	fields, _ := metadata["managedFields"].([]any)
	for _, one := range fields {
		if one, here := one.(map[string]any); here {
			delete(one, "time")
		}
	}
	lines := leaves("", map[string]any(o))
	slices.Sort(lines)
	return lines, nil
}

// paramRounds is how often each kind of change is made.
const paramRounds = 3

// params changes ConfigMaps that the policies of ../policies/params.yaml have as params, and measures until requests are
// decided by them. Each change has to be seen within the limit.
func params(s *server, limit time.Duration) error {
	const home = "e2e-policy-params"
	collection := "/api/v1/namespaces/" + home + "/configmaps"
	param := func(name, denied string) object {
		return configMap(name).label("params", name).with("data", map[string]any{"denied": denied})
	}
	put := func(o object) error {
		got, err := s.send(call{method: "PUT", path: collection + "/" + textAt(o, "metadata", "name"), body: o})
		if err == nil && got.code != http.StatusOK {
			err = fmt.Errorf("%d %s", got.code, got.status.Message)
		}
		return err
	}
	remove := func(name string) error {
		got, err := s.send(call{method: "DELETE", path: collection + "/" + name})
		if err == nil && got.code != http.StatusOK {
			err = fmt.Errorf("%d %s", got.code, got.status.Message)
		}
		return err
	}
	if err := s.create(namespaces, namespace(home)); err != nil {
		return err
	}
	if err := s.create(collection, param("by-name", "nobody")); err != nil {
		return err
	}
	// decided waits until the request is denied with this message, or allowed if the message is empty.
	decided := func(request, message string, limit time.Duration) (time.Duration, error) {
		for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
			o := configMap(request).label("params", "asked")
			got, err := s.send(create("/api/v1/namespaces/e2e/configmaps"+dryRun, o))
			if err != nil {
				return 0, err
			}
			took := time.Since(began)
			if took > limit {
				return took, fmt.Errorf("not seen within %s: %d %s", limit, got.code, got.status.Message)
			}
			isDenied := got.code == http.StatusUnprocessableEntity && strings.HasSuffix(got.status.Message, message)
			if message == "" && got.code == http.StatusCreated || message != "" && isDenied {
				return took, nil
			}
		}
	}
	// The registration is in force as soon as a request is denied.
	if err := put(param("by-name", "first")); err != nil {
		return err
	}
	if _, err := decided("first", "denied by by-name", time.Minute); err != nil {
		return err
	}
	longest := map[string]time.Duration{}
	for round := range paramRounds {
		name := fmt.Sprintf("request-%d", round)
		for _, step := range []struct {
			what, request, message string
			write                  func() error
		}{
			{"by name, changed", name, "denied by by-name", func() error { return put(param("by-name", name)) }},
			{"by name, changed back", name, "", func() error { return put(param("by-name", "nobody")) }},
			{"by selector, added", name, "denied by by-selector",
				func() error { return s.create(collection, param("by-selector", name)) }},
			{"by selector, removed", name, "", func() error { return remove("by-selector") }},
		} {
			if err := step.write(); err != nil {
				return fmt.Errorf("%s: %w", step.what, err)
			}
			took, err := decided(step.request, step.message, limit)
			if err != nil {
				return fmt.Errorf("%s: %w", step.what, err)
			}
			longest[step.what] = max(longest[step.what], took)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(longest)) {
		fmt.Printf("%s: seen after %s at most\n", what, longest[what].Round(time.Millisecond))
	}
	return nil
}
