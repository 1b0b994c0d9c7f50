// An initializer of objects that an apiserver stores before they are initialized, as the proposal draws it: it watches all
// objects, and where its name is first in the list it does its part and removes itself, by an ordinary update.
//
//	initializer -server http://127.0.0.1:8080 -name one.e2e.gatepost.dev -label one
//
// It labels the object. An object whose label `refuse` is that label gets a failing result instead.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

type object = map[string]any

var (
	server = flag.String("server", "", "the apiserver")
	name   = flag.String("name", "", "the initializer")
	label  = flag.String("label", "", "the label that it writes; its user is called the same")
)

func main() {
	flag.Parse()
	log.SetFlags(0)
	fmt.Println("acting as", *name)
	for {
		if err := watch("/api/v1/pods"); err != nil {
			log.Print(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// watch acts on each object until the stream ends.
func watch(path string) error {
	response, err := ask("GET", path+"?watch=1&includeUninitialized=true", nil)
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
	list, _ := metadata["initializers"].(object)
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
	reached("initializer-begun")
	reached(*label + "-begun")
	body, _ := json.Marshal(it)
	path := fmt.Sprintf("/api/v1/namespaces/%s/pods/%s", metadata["namespace"], metadata["name"])
	response, err := ask("PUT", path, body)
	if err != nil {
		log.Print(err)
		return
	}
	response.Body.Close()
	reached("initializer-done")
	reached(*label + "-done")
	if response.StatusCode != http.StatusOK {
		// Somebody was faster, or the object is gone: the watch says what is there now. Else this is tried again.
		log.Printf("%s: %s", metadata["name"], response.Status)
		if response.StatusCode >= 500 {
			time.Sleep(100 * time.Millisecond)
			act(it)
		}
	}
}

func ask(method, path string, body []byte) (*http.Response, error) {
	request, err := http.NewRequest(method, *server+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Impersonate-User", *label)
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
