package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"
)

// runCases sends every case and writes its outcome.
func runCases(server *server, hooks, out string) error {
	audit, err := openAudit(server.folder)
	if err != nil {
		return err
	}
	file := os.Stdout
	if out != "" {
		if file, err = os.Create(out); err != nil {
			return err
		}
		defer file.Close()
	}
	lines := json.NewEncoder(file)
	lines.SetEscapeHTML(false)
	if _, err := askSeen(hooks); err != nil {
		return err
	}
	for _, one := range cases() {
		got, err := sent(server, hooks, one.call)
		if err != nil {
			return fmt.Errorf("%s: %w", one.name, err)
		}
		annotations, err := audit.annotations(got.audit)
		if err != nil {
			return fmt.Errorf("%s: %w", one.name, err)
		}
		asked, err := askSeen(hooks)
		if err != nil {
			return err
		}
		if err := lines.Encode(newOutcome(one.name, got, annotations, asked)); err != nil {
			return err
		}
	}
	return nil
}

// sent sends the call, again and again where it has to come to a certain code; the hooks then have seen the last only.
func sent(server *server, hooks string, call call) (answer, error) {
	if call.before != nil {
		// Another encoding of the same case may have made it already.
		if got, err := server.send(*call.before); err != nil || got.code != http.StatusCreated && got.code != http.StatusConflict {
			return answer{}, fmt.Errorf("what has to be there before: %d %s %v", got.code, got.status.Message, err)
		}
		if _, err := askSeen(hooks); err != nil {
			return answer{}, err
		}
	}
	for until := time.Now().Add(15 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if err := settle(server, call); err != nil {
			return answer{}, err
		}
		got, err := server.send(call)
		if err != nil || call.code == 0 || got.code == call.code || time.Now().After(until) {
			return got, err
		}
		if _, err := askSeen(hooks); err != nil {
			return answer{}, err
		}
	}
}

// settle waits until kube-apiserver's cache has what was last written: for changes it takes the old object from there,
// asks the hooks about it, and asks them again about the right one when it was too old. A list reads all that is there.
func settle(server *server, call call) error {
	if call.method == "POST" {
		return nil
	}
	path, _, _ := strings.Cut(call.path, "?")
	segments := strings.Split(path, "/")
	for i := len(segments) - 1; i > 0; i-- {
		if slices.Contains([]string{"pods", "deployments", "configmaps", "namespaces", "widgets", "horizontalpodautoscalers", "gadgets"}, segments[i]) {
			_, err := server.send(get(strings.Join(segments[:i+1], "/")))
			return err
		}
	}
	return fmt.Errorf("%s is in no collection that is known here", call.path)
}

// askSeen is what the hooks were asked since.
func askSeen(hooks string) ([]asking, error) {
	if hooks == "" {
		return nil, nil
	}
	// Its certificate is for hooks' callers; who only looks on needs none.
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	response, err := client.Get("https://" + hooks + "/seen")
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	var all []asking
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		decoder := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		// As written: 9007199254740993 must not become ...992 here.
		decoder.UseNumber()
		var one asking
		if err := decoder.Decode(&one); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, lines.Err()
}

func sum(text []byte) []byte {
	sum := sha256.Sum256(text)
	return sum[:6]
}

// clean removes everything that the cases made or may have left.
func clean(server *server) error {
	for _, path := range []string{
		"/api/v1/namespaces/e2e/pods", "/apis/apps/v1/namespaces/e2e/deployments", "/api/v1/namespaces/e2e/configmaps",
		"/api/v1/namespaces/e2e-selected/configmaps", "/apis/e2e.gatepost.dev/v1/namespaces/e2e/widgets",
		"/apis/autoscaling/v2/namespaces/e2e/horizontalpodautoscalers", "/apis/e2e.gatepost.dev/v1/namespaces/e2e/gadgets",
	} {
		if _, err := server.send(call{method: "DELETE", path: path + "?gracePeriodSeconds=0"}); err != nil {
			return err
		}
	}
	for _, name := range []string{"e2e-made", "e2e-refused", "e2e-new", "e2e-unseen", "e2e-tenant"} {
		path := "/api/v1/namespaces/" + name
		if _, err := server.send(call{method: "DELETE", path: path}); err != nil {
			return err
		}
		// No controller is there to see that it is empty.
		body := map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}, "spec": map[string]any{}}
		if _, err := server.send(call{method: "PUT", path: path + "/finalize", body: body}); err != nil {
			return err
		}
	}
	return nil
}

// canary is asked about by one hook only, which refuses it; a dry run, so that nothing is stored either way.
func canary() call {
	object := configMap("canary").label("canary", "yes").script("canary", `{"allowed": false}`)
	return create("/api/v1/namespaces/e2e/configmaps?dryRun=All", object)
}

// await repeats the canary until its fate is this one.
func await(server *server, want string) error {
	codes := map[string]func(int) bool{
		"yes": func(code int) bool { return code == 201 },
		"no":  func(code int) bool { return code == 400 },
	}
	reached, known := codes[want]
	if !known {
		return fmt.Errorf("await yes or no, not %q", want)
	}
	last := 0
	for until := time.Now().Add(30 * time.Second); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		got, err := server.send(canary())
		if err != nil {
			return err
		}
		if last = got.code; reached(last) {
			return nil
		}
	}
	return fmt.Errorf("after 30 s the canary's answer is still %d, not %s", last, want)
}
