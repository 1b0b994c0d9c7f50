// An initializer of objects that an apiserver stores before they are initialized, as the proposal draws it: it watches all
// objects, and where its name is first in the list it does its part and removes itself, by an ordinary update.
//
//	initializer -server http://127.0.0.1:8080 -name one.e2e.gatepost.dev -label one
//
// The list is in metadata.initializers, or in JSON in the annotation that it is told, as of servers with go/admission.
//
// It labels the object. An object whose label `refuse` is that label gets a failing result instead.
package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"time"
)

type object = map[string]any

var (
	server     = flag.String("server", "", "the apiserver")
	resource   = flag.String("resource", "/api/v1/pods", "the path of all objects of the resource")
	annotation = flag.String("annotation", "", "the annotation with the list")
	authority  = flag.String("ca", "", "a file with the authority of the apiserver")
	token      = flag.String("token", "", "a token that may impersonate")
	name       = flag.String("name", "", "the initializer")
	label      = flag.String("label", "", "the label that it writes; its user is called the same")
)

func main() {
	flag.Parse()
	log.SetFlags(0)
	if *authority != "" {
		text, err := os.ReadFile(*authority)
		if err != nil {
			log.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(text)
		http.DefaultTransport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: roots}
	}
	fmt.Println("acting as", *name)
	for {
		if err := watch(*resource); err != nil {
			log.Print(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// watch acts on each object until the stream ends.
func watch(all string) error {
	response, err := ask("GET", all+"?watch=1&includeUninitialized=true", nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	lines := bufio.NewReader(response.Body)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return err
		}
		var event struct {
			Type   string
			Object object
		}
		if err := json.Unmarshal(line, &event); err != nil {
			return err
		}
		if event.Type != "DELETED" {
			act(event.Object)
		}
	}
}

func act(it object) {
	metadata := it["metadata"].(object)
	list := listOf(metadata)
	pending, _ := list["pending"].([]any)
	if len(pending) == 0 || list["result"] != nil || pending[0].(object)["name"] != *name {
		return
	}
	labels, _ := metadata["labels"].(object)
	if labels == nil {
		labels = object{}
	}
	if labels["refuse"] == *label {
		list["result"] = object{
			"status": "Failure", "code": 403, "reason": "Forbidden", "message": "refused by " + *label,
		}
	} else {
		labels[*label] = "1"
		metadata["labels"] = labels
		list["pending"] = pending[1:]
	}
	if *annotation != "" {
		text, _ := json.Marshal(list)
		metadata["annotations"].(object)[*annotation] = string(text)
	}
	reached("initializer-begun")
	reached(*label + "-begun")
	body, _ := json.Marshal(it)
	group, plural := path.Split(*resource)
	path := fmt.Sprintf("%snamespaces/%s/%s/%s", group, metadata["namespace"], plural, metadata["name"])
	for {
		response, err := ask("PUT", path, body)
		if err != nil {
			log.Print(err)
			return
		}
		response.Body.Close()
		reached("initializer-done")
		reached(*label + "-done")
		if response.StatusCode == http.StatusOK {
			return
		}
		// Somebody was faster, or the object is gone: the watch says what is there now. Else this is tried again.
		log.Printf("%s: %s", metadata["name"], response.Status)
		if response.StatusCode < 500 {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// listOf returns the list of an object; nil if it is initialized.
func listOf(metadata object) object {
	if *annotation == "" {
		list, _ := metadata["initializers"].(object)
		return list
	}
	annotations, _ := metadata["annotations"].(object)
	text, _ := annotations[*annotation].(string)
	var list object
	_ = json.Unmarshal([]byte(text), &list)
	return list
}

func ask(method, path string, body []byte) (*http.Response, error) {
	request, err := http.NewRequest(method, *server+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Impersonate-User", *label)
	request.Header.Set("Content-Type", "application/json")
	if *token != "" {
		request.Header.Set("Authorization", "Bearer "+*token)
	}
	return http.DefaultClient.Do(request)
}

// reached waits at a step where a trial wants to stop this process: see examples/apiserver/steps.rs.
func reached(step string) {
	folder := os.Getenv("STEPS")
	if folder == "" {
		return
	}
	waiting := filepath.Join(folder, step+".reached")
	if os.Rename(filepath.Join(folder, step), waiting) != nil {
		return
	}
	for {
		if _, err := os.Stat(waiting); err != nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}
