package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	admissionv1 "example.com/pinned-images/gen/admissionv1"
	metav1 "example.com/pinned-images/gen/metav1"
)

// pod is what the policy reads of a Pod; everything else in the object is skipped while parsing.
type pod struct {
	Spec struct {
		InitContainers      []container `json:"initContainers"`
		Containers          []container `json:"containers"`
		EphemeralContainers []container `json:"ephemeralContainers"`
	} `json:"spec"`
}

type container struct {
	Name      string `json:"name"`
	Image     string `json:"image"`
	Resources struct {
		Limits map[string]json.RawMessage `json:"limits"`
	} `json:"resources"`
}

// judge judges one request. An error means that the object cannot be understood: then there is no verdict,
// and Gatepost's failure policy decides.
func judge(request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	response := &admissionv1.AdmissionResponse{Uid: request.Uid, Allowed: new(true)}
	if !concerns(request) {
		return response, nil
	}
	var pod pod
	if err := json.Unmarshal(request.GetObject().GetRaw(), &pod); err != nil {
		// The error's text could quote the object.
		return nil, fmt.Errorf("the object is no Pod in JSON")
	}

	var unpinned, images []string
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers, pod.Spec.EphemeralContainers) {
		images = append(images, container.Image)
		if !pinned(container.Image) {
			unpinned = append(unpinned, fmt.Sprintf("container %q runs %q", container.Name, container.Image))
		}
	}
	for _, container := range pod.Spec.Containers {
		for _, resource := range []string{"cpu", "memory"} {
			if _, limited := container.Resources.Limits[resource]; !limited {
				response.Warnings = append(response.Warnings,
					fmt.Sprintf("container %q has no %s limit", container.Name, resource))
			}
		}
	}
	slices.Sort(images)
	response.AuditAnnotations = map[string]string{"images": strings.Join(slices.Compact(images), ", ")}
	if len(unpinned) > 0 {
		response.Allowed = new(false)
		response.Status = &metav1.Status{
			Status:  new("Failure"),
			Message: new("images need a tag other than latest, or a digest: " + strings.Join(unpinned, "; ")),
			Reason:  new("Forbidden"),
			Code:    new(int32(403)),
		}
	}
	return response, nil
}

// concerns says whether a Pod is made or changed. A hook's rules say this too; a hook that trusts them alone breaks
// when they change.
func concerns(request *admissionv1.AdmissionRequest) bool {
	return request.GetKind().GetGroup() == "" && request.GetKind().GetKind() == "Pod" &&
		slices.Contains([]string{"CREATE", "UPDATE"}, request.GetOperation()) &&
		slices.Contains([]string{"", "ephemeralcontainers"}, request.GetSubResource())
}

// pinned says whether this image names one thing for ever, or nearly so.
func pinned(image string) bool {
	if strings.Contains(image, "@") {
		return true
	}
	// A colon before the last slash belongs to the registry's port.
	name := image[strings.LastIndex(image, "/")+1:]
	_, tag, _ := strings.Cut(name, ":")
	return tag != "" && tag != "latest"
}
