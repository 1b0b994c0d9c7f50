package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// standing is a webhook as the apiserver has it.
type standing struct {
	carries bool
	// client is where it leads and whom that trusts.
	client string
}

// watched is what can be seen of adoption: the lease of the replica that writes, and all webhooks.
type watched struct {
	lock sync.Mutex
	// holder is the instance that writes, as NAME/INSTANCE.
	holder    string
	announced map[string]bool
	webhooks  map[string]standing
	// led: the lease has been read.
	led     bool
	changed chan struct{}
}

const webhookPath = "/apis/admissionregistration.k8s.io/v1/"

func watch(server *server) *watched {
	w := &watched{announced: map[string]bool{}, webhooks: map[string]standing{}, changed: make(chan struct{}, 1)}
	for _, kind := range []string{"validating", "mutating"} {
		go w.follow(server, webhookPath+kind+"webhookconfigurations?watch=1", func(o watchedObject) { w.webhook(kind, o) })
	}
	go w.follow(server, "/apis/coordination.k8s.io/v1/namespaces/gatepost/leases?watch=1&fieldSelector=metadata.name=gatepost-adopt", w.lease)
	return w
}

type watchedObject struct {
	Metadata struct {
		Name        string            `json:"name"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		HolderIdentity string `json:"holderIdentity"`
	} `json:"spec"`
	Webhooks []struct {
		Name            string          `json:"name"`
		ClientConfig    json.RawMessage `json:"clientConfig"`
		MatchConditions []struct {
			Name string `json:"name"`
		} `json:"matchConditions"`
	} `json:"webhooks"`
}

// follow hands each object to `take` as it is and as it changes. Deletions play no part here.
func (w *watched) follow(server *server, path string, take func(watchedObject)) {
	client := http.Client{Transport: server.client.Transport}
	for ; ; time.Sleep(50 * time.Millisecond) {
		request, err := http.NewRequest("GET", server.url+path, nil)
		if err != nil {
			panic(err)
		}
		request.Header.Set("Authorization", "Bearer "+server.token)
		response, err := client.Do(request)
		if err != nil {
			continue
		}
		lines := bufio.NewReader(response.Body)
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				break
			}
			var event struct {
				Type   string        `json:"type"`
				Object watchedObject `json:"object"`
			}
			if json.Unmarshal(line, &event) != nil || event.Type != "ADDED" && event.Type != "MODIFIED" {
				continue
			}
			w.lock.Lock()
			take(event.Object)
			w.lock.Unlock()
			select {
			case w.changed <- struct{}{}:
			default:
			}
		}
		response.Body.Close()
	}
}

func (w *watched) webhook(kind string, o watchedObject) {
	for _, one := range o.Webhooks {
		carries := false
		for _, condition := range one.MatchConditions {
			carries = carries || condition.Name == "gatepost.dev/served"
		}
		w.webhooks[kind+"/"+o.Metadata.Name+"/"+one.Name] = standing{carries, string(one.ClientConfig)}
	}
}

func (w *watched) lease(o watchedObject) {
	w.holder, w.led = o.Spec.HolderIdentity, true
	var announcement struct {
		IDs []string `json:"ids"`
	}
	_ = json.Unmarshal([]byte(o.Metadata.Annotations["gatepost.dev/announced"]), &announcement)
	clear(w.announced)
	for _, id := range announcement.IDs {
		w.announced[id] = true
	}
}

// idOf is the short name that leases have for a webhook.
func idOf(webhook string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(webhook)))[:16]
}

// of is the webhooks of this configuration, given as [KIND/]NAME.
func (w *watched) of(configuration string) map[string]standing {
	if !strings.Contains(configuration, "/") {
		configuration = "validating/" + configuration
	}
	found := map[string]standing{}
	for name, one := range w.webhooks {
		if strings.HasPrefix(name, configuration+"/") {
			found[name] = one
		}
	}
	return found
}
