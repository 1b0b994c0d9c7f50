package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// settles is how long an operator waits for a change of its registration to be in force everywhere: the freshness bound of
// Gatepost, and a second for the apiserver.
const settles = 6 * time.Second

// own is a small operator that keeps its registration until it is killed. What it does is a line on stdout each.
//
//	own applies KIND NAME FILE                 applies the file, server-side, every second
//	own updates KIND NAME FILE SIGN            reads, changes an annotation and updates, every two seconds, and every ten the timeout
//	                                           as well (what changes all the time is not taken over); while the file SIGN is there,
//	                                           it replaces everything instead, as if it had read nothing. With "once" in SIGN it
//	                                           does so once, and removes SIGN.
//	own rotates KIND NAME SERVED ONE,CA OTHER,CA     has the hook serve one certificate and then the other, of another authority:
//	                                           the bundle has both while that changes
func own(server *server, words []string) error {
	if len(words) < 4 {
		return errors.New("own: how, what kind, what name, which file?")
	}
	path := "/apis/admissionregistration.k8s.io/v1/" + words[1] + "webhookconfigurations/" + words[2]
	switch rest := words[3:]; {
	case words[0] == "applies" && len(rest) == 1:
		return ownApplies(server, path, rest[0])
	case words[0] == "updates" && len(rest) == 2:
		return ownUpdates(server, path, rest[0], rest[1])
	case words[0] == "rotates" && len(rest) == 3:
		return ownRotates(server, path, rest[0], strings.Split(rest[1], ","), strings.Split(rest[2], ","))
	}
	return fmt.Errorf("own: there is no %q", words)
}

// toldOf says what came of a write; one that failed is made up for at the next turn.
func toldOf(what string, call call, server *server) bool {
	got, err := server.send(call)
	fmt.Println(time.Now().Format("15:04:05.000"), what, got.code, got.status.Message, err)
	return err == nil && got.code == 200
}

func ownApplies(server *server, path, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for ; ; time.Sleep(time.Second) {
		toldOf("applied", call{method: "PATCH", path: path + "?fieldManager=owner&force=true", body: string(text),
			contentType: "application/apply-patch+yaml"}, server)
	}
}

func ownUpdates(server *server, path, file, sign string) error {
	for n := 0; ; n++ {
		if n > 0 {
			time.Sleep(2 * time.Second)
		}
		got, err := server.send(get(path))
		var read object
		if err == nil {
			err = json.Unmarshal(got.text, &read)
		}
		if err != nil || got.code != 200 {
			fmt.Println("reading", got.code, err)
			continue
		}
		order, err := os.ReadFile(sign)
		if err != nil {
			webhook := read["webhooks"].([]any)[0].(map[string]any)
			webhook["timeoutSeconds"] = 9 + n/5%2
			read.annotation("e2e.gatepost.dev/updated", strconv.Itoa(n))
			toldOf("updated", replace(path+"?fieldManager=owner", read), server)
			continue
		}
		whole, err := readObject(file)
		if err != nil {
			return err
		}
		whole["metadata"].(map[string]any)["resourceVersion"] = read["metadata"].(map[string]any)["resourceVersion"]
		if toldOf("replaced", replace(path+"?fieldManager=owner", whole), server) && strings.TrimSpace(string(order)) == "once" {
			_ = os.Remove(sign)
		}
	}
}

func readObject(file string) (object, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var read object
	return read, json.Unmarshal(text, &read)
}

// ownRotates survives being killed anywhere: it begins with a bundle that has both authorities.
func ownRotates(server *server, path, served string, one, other []string) error {
	bundle := func(what string, authorities ...string) {
		var all []byte
		for _, name := range authorities {
			text, err := os.ReadFile(name)
			if err != nil {
				panic(err)
			}
			all = append(all, text...)
		}
		patch, err := json.Marshal([]any{map[string]any{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": all}})
		if err != nil {
			panic(err)
		}
		for !toldOf(what, call{method: "PATCH", path: path + "?fieldManager=owner", body: string(patch),
			contentType: "application/json-patch+json"}, server) {
			time.Sleep(200 * time.Millisecond)
		}
	}
	for {
		now, err := os.ReadFile(served)
		if err != nil {
			return err
		}
		next, text := other, []byte(nil)
		for _, which := range [][]string{one, other} {
			if text, err = os.ReadFile(which[0]); err != nil {
				return err
			}
			if string(text) != string(now) {
				next = which
				break
			}
		}
		bundle("both authorities", one[1], other[1])
		time.Sleep(settles)
		waiting := filepath.Join(filepath.Dir(served), ".next")
		if err := os.WriteFile(waiting, text, 0o600); err != nil {
			return err
		}
		if err := os.Rename(waiting, served); err != nil {
			return err
		}
		fmt.Println(time.Now().Format("15:04:05.000"), "serves", next[0])
		time.Sleep(settles)
		bundle("only "+next[1], next[1])
		time.Sleep(time.Second)
	}
}
