package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// freshness is how long after a write a configuration has to be in force.
	freshness = 5 * time.Second
	// lingers is for how much longer a webhook may be called that its owner has removed: two seconds after the read that
	// finds it gone, for an apiserver that has not heard of that yet, and until the read after those. On a machine that
	// does nothing else that comes to four seconds after the write in all.
	lingers              = 5 * time.Second
	changedConfiguration = webhookPath + "validatingwebhookconfigurations/adopt-changing"
	// every is how often a write is tried while a change is to come into force.
	every = 100 * time.Millisecond
)

// ownersChange is one change of a webhook by its owner, and the hooks that have to be asked about a write before and after.
type ownersChange struct {
	name  string
	patch []any
	// operation is that of the writes; broken is the hook that is to fail in them.
	operation, broken string
	before, after     []string
}

func at(path string, value any) map[string]any {
	return map[string]any{"op": "replace", "path": "/webhooks/0/" + path, "value": value}
}

// ownersChanges is what owners may do: ../config/adopt.yaml has the webhook as it is before, and after the last of them.
func ownersChanges(first, plain map[string]any) []ownersChange {
	rules := func(operations ...string) any {
		return []any{map[string]any{"operations": operations, "apiGroups": []any{""}, "apiVersions": []any{"v1"}, "resources": []any{"configmaps"}}}
	}
	more := map[string]any{
		"name": "adopt-added.e2e.gatepost.dev", "clientConfig": first, "rules": rules("CREATE"), "sideEffects": "None",
		"namespaceSelector": map[string]any{"matchLabels": map[string]any{"team": "changers"}}, "admissionReviewVersions": []any{"v1"},
	}
	added := maps.Clone(first)
	added["url"] = strings.Replace(first["url"].(string), "changing-here", "changing-added", 1)
	more["clientConfig"] = added
	here, there, both := []string{"changing-here"}, []string{"changing-there"}, []string{"changing-added", "changing-there"}
	return []ownersChange{
		{"url", []any{at("clientConfig", plain)}, "CREATE", "", here, there},
		{"rules", []any{at("rules", rules("CREATE", "UPDATE"))}, "UPDATE", "", nil, there},
		{"failure-policy", []any{at("failurePolicy", "Ignore")}, "CREATE", "changing-there", []string{"500"}, nil},
		{"added", []any{map[string]any{"op": "add", "path": "/webhooks/-", "value": more}}, "CREATE", "", there, both},
		{"removed", []any{map[string]any{"op": "remove", "path": "/webhooks/1"}}, "CREATE", "", both, there},
		{"failure-policy-back", []any{at("failurePolicy", "Fail")}, "CREATE", "changing-there", nil, []string{"500"}},
		{"rules-back", []any{at("rules", rules("CREATE"))}, "UPDATE", "", there, nil},
		{"url-back", []any{at("clientConfig", first)}, "CREATE", "", there, here},
	}
}

// change makes one of these changes and writes all the while: each write has to be judged as before or as after it, and
// each that begins later than the freshness bound after the change was sent as after it. `ends` is where the webhook leads
// before and after, as JSON. With `killed`, writes may fail as somebody is killed.
func change(server *server, killed bool, ends string, names []string) error {
	var clients []map[string]any
	if err := json.Unmarshal([]byte(ends), &clients); err != nil || len(clients) != 2 || len(names) != 1 {
		return errors.New("change: which change, and with -hooks where from and where to?")
	}
	all := ownersChanges(clients[0], clients[1])
	which := slices.IndexFunc(all, func(one ownersChange) bool { return one.name == names[0] })
	if which < 0 {
		return fmt.Errorf("there is no change %q", names[0])
	}
	one := all[which]
	patch, err := json.Marshal(one.patch)
	if err != nil {
		return err
	}
	if one.operation == "UPDATE" {
		if got, err := server.send(create(changesPath, configMap("changes"))); err != nil || got.code != 201 && got.code != 409 {
			return fmt.Errorf("what is to be updated: %d %s %v", got.code, got.status.Message, err)
		}
	}
	if said := one.tried(server); said != strings.Join(one.before, " ") {
		return fmt.Errorf("%s: before the change a write is judged by %q", one.name, said)
	}

	var lock sync.Mutex
	found := tries{bound: freshness}
	if one.name == "removed" {
		found.bound += lingers
	}
	var writes sync.WaitGroup
	sent := time.Now()
	tick := time.NewTicker(every)
	defer tick.Stop()
	writes.Go(func() {
		got, err := server.send(call{method: "PATCH", path: changedConfiguration + "?fieldManager=owner", body: string(patch), contentType: "application/json-patch+json"})
		lock.Lock()
		defer lock.Unlock()
		found.written = time.Since(sent)
		if err != nil || got.code != http.StatusOK {
			found.complain(fmt.Sprintf("the change itself: %d %s %v", got.code, got.status.Message, err))
		}
	})
	for began := range tick.C {
		if began.Sub(sent) > found.bound+1500*time.Millisecond {
			break
		}
		writes.Go(func() {
			began := time.Since(sent)
			said := one.tried(server)
			lock.Lock()
			defer lock.Unlock()
			found.add(one, began, said, killed)
		})
	}
	writes.Wait()
	return found.told(one.name)
}

const changesPath = "/api/v1/namespaces/changes/configmaps"

// tried writes once, as a dry run, and says which hooks have judged that, or 500 where it was refused for a failure.
func (c ownersChange) tried(server *server) string {
	written := configMap("changes")
	if c.operation == "CREATE" {
		written = newObject("v1", "ConfigMap", "")
		written["metadata"] = map[string]any{"generateName": "changes-"}
	}
	for _, hook := range []string{"changing-here", "changing-there", "changing-added"} {
		written.script(hook, fmt.Sprintf(`{"warnings": [%q]}`, hook))
	}
	if c.broken != "" {
		written.script(c.broken, `{"do": "500"}`)
	}
	call := create(changesPath+"?dryRun=All", written)
	if c.operation == "UPDATE" {
		call = replace(changesPath+"/changes?dryRun=All", written)
	}
	got, err := server.send(call)
	switch {
	case err != nil:
		return "failed: " + err.Error()
	case c.broken != "" && got.code == 500 && strings.Contains(got.status.Message, "this hook is broken"):
		return "500"
	case got.code >= 400:
		return fmt.Sprintf("failed: %d %s", got.code, got.status.Message)
	}
	var said []string
	for _, warning := range got.warnings {
		for _, hook := range []string{"changing-added", "changing-here", "changing-there"} {
			if strings.Contains(warning, `"`+hook+`"`) {
				said = append(said, hook)
			}
		}
	}
	slices.Sort(said)
	return strings.Join(slices.Compact(said), " ")
}

// tries is what became of the writes around a change.
type tries struct {
	// bound is after how long every write has to be judged as after the change.
	bound                time.Duration
	writes, both, failed int
	written              time.Duration
	// firstAfter is when the first began that was judged as after the change, lastBefore the last as before it.
	firstAfter, lastBefore time.Duration
	wrong                  []string
}

func (t *tries) complain(what string) {
	if len(t.wrong) < 10 {
		t.wrong = append(t.wrong, what)
	}
}

func (t *tries) add(one ownersChange, began time.Duration, said string, killed bool) {
	t.writes++
	before, after := strings.Join(one.before, " "), strings.Join(one.after, " ")
	union := slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(one.before), one.after...))))
	switch said {
	case after:
		if t.firstAfter == 0 || began < t.firstAfter {
			t.firstAfter = began
		}
	case before, strings.Join(union, " "):
		if said != before {
			t.both++
		}
		t.lastBefore = max(t.lastBefore, began)
		if began > t.bound {
			t.complain(fmt.Sprintf("%.1f s after it, a write was judged by %q, not by %q", began.Seconds(), said, after))
		}
	default:
		if killed && strings.HasPrefix(said, "failed") {
			t.failed++
			return
		}
		t.complain(fmt.Sprintf("%.1f s after it, a write was judged by %q, neither by %q nor by %q", began.Seconds(), said, before, after))
	}
}

func (t *tries) told(name string) error {
	fmt.Printf("change %s: answered after %.2f s; first write judged anew %.1f s after it was sent, last as before %.1f s; "+
		"%d writes, %d judged by both, %d failed\n",
		name, t.written.Seconds(), t.firstAfter.Seconds(), t.lastBefore.Seconds(), t.writes, t.both, t.failed)
	if t.firstAfter == 0 {
		t.complain("no write was judged anew")
	}
	if len(t.wrong) > 0 {
		return errors.New(strings.Join(t.wrong, "; "))
	}
	return nil
}
