package admission

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
)

// maxCauses bounds the causes of a result that is stored, and maxResultText its message.
const (
	maxCauses     = 16
	maxResultText = 16 << 10
)

var errUnreadable = errors.New("received invalid response: it is no valid protobuf message of its kind")

// A fieldsMessage is a message to which fields are appended in order.
type fieldsMessage []byte

func (f *fieldsMessage) text(number protowire.Number, text string) {
	if text != "" {
		*f = protowire.AppendString(protowire.AppendTag(*f, number, protowire.BytesType), valid(text))
	}
}

func (f *fieldsMessage) message(number protowire.Number, message []byte) {
	*f = protowire.AppendBytes(protowire.AppendTag(*f, number, protowire.BytesType), message)
}

func (f *fieldsMessage) number(number protowire.Number, value uint64) {
	if value != 0 {
		*f = protowire.AppendVarint(protowire.AppendTag(*f, number, protowire.VarintType), value)
	}
}

func userMessage(info user.Info) ([]byte, error) {
	message := authenticationv1.UserInfo{}
	if info != nil {
		message = authenticationv1.UserInfo{Username: valid(info.GetName()), UID: valid(info.GetUID()), Groups: allValid(info.GetGroups())}
		for key, values := range info.GetExtra() {
			if message.Extra == nil {
				message.Extra = map[string]authenticationv1.ExtraValue{}
			}
			message.Extra[valid(key)] = allValid(values)
		}
	}
	return message.Marshal()
}

// readPolicyMessage is gatepost.v1.ReadPolicyRequest.
func readPolicyMessage(ctx context.Context, read Read) (encoded, error) {
	user, err := userMessage(userOf(ctx))
	if err != nil {
		return nil, err
	}
	var message fieldsMessage
	message.number(1, uint64(read.Verb))
	message.message(2, user)
	message.text(3, read.Resource.Group)
	message.text(4, read.Resource.Version)
	message.text(5, read.Resource.Resource)
	message.text(6, read.Namespace)
	message.text(7, read.Name)
	message.number(8, protowire.EncodeBool(includesUnfinished(ctx)))
	return encoded(message), nil
}

// readReadPolicy reads gatepost.v1.ReadPolicyResponse.
func readReadPolicy(message encoded) (ReadPolicy, error) {
	var policy ReadPolicy
	err := eachField(message, func(number protowire.Number, value uint64, bytes []byte) error {
		switch {
		case number == 1 && bytes == nil:
			policy.ShowsAll = value == 1
		case number == 4 && bytes != nil:
			policy.hidden = &metav1.Status{}
			return policy.hidden.Unmarshal(bytes)
		case number == 5 && bytes != nil:
			policy.repair = &readRepair{}
			return eachField(bytes, func(number protowire.Number, value uint64, bytes []byte) error {
				switch {
				case number == 1 && bytes == nil:
					policy.repair.olderThan = time.Duration(uint32(value)) * time.Second
				case number == 2 && bytes != nil:
					policy.repair.mustAct = append(policy.repair.mustAct, string(bytes))
				}
				return nil
			})
		}
		return nil
	})
	if err != nil {
		return ReadPolicy{}, errUnreadable
	}
	return policy, nil
}

// An objectName names an object in messages of gatepost.v1.Initialization.
type objectName struct {
	group, resource, namespace, name string
	uid                              types.UID
}

func (o *objectName) append(message *fieldsMessage) {
	message.text(1, o.group)
	message.text(2, o.resource)
	message.text(3, o.namespace)
	message.text(4, o.name)
	message.text(5, string(o.uid))
}

func (o *objectName) read(number protowire.Number, bytes []byte) {
	switch text := string(bytes); number {
	case 1:
		o.group = text
	case 2:
		o.resource = text
	case 3:
		o.namespace = text
	case 4:
		o.name = text
	case 5:
		o.uid = types.UID(text)
	}
}

// holdMessage is gatepost.v1.HoldRequest.
func holdMessage(object objectName, resourceVersion string) encoded {
	var message fieldsMessage
	object.append(&message)
	message.text(6, resourceVersion)
	return encoded(message)
}

// readHoldEnd reads gatepost.v1.HoldResponse.
func readHoldEnd(message encoded) (holdEnd, error) {
	end, found := holdEnd{}, false
	err := eachField(message, func(number protowire.Number, _ uint64, bytes []byte) error {
		if number > 4 || bytes == nil {
			return nil
		}
		end, found = holdEnd{}, true
		switch number {
		case 2:
			end.refusal = &metav1.Status{}
			return end.refusal.Unmarshal(bytes)
		case 3:
			end.refusal = &metav1.Status{}
			return eachField(bytes, func(number protowire.Number, _ uint64, bytes []byte) error {
				if number == 1 && bytes != nil {
					return end.refusal.Unmarshal(bytes)
				}
				return nil
			})
		}
		return nil
	})
	if err != nil || !found {
		return holdEnd{}, errUnreadable
	}
	return end, nil
}

// Events of gatepost.v1.StoredObjectEvent.

func unfinishedEvent(object objectName, resourceVersion string, list *Initializers) (encoded, error) {
	var stored fieldsMessage
	object.append(&stored)
	stored.text(6, resourceVersion)
	for _, one := range list.Pending {
		stored.text(7, one.Name)
	}
	if list.Result != nil {
		result, err := list.Result.Marshal()
		if err != nil {
			return nil, err
		}
		stored.message(8, result)
	}
	return event(1, stored), nil
}

func initializedEvent(uid types.UID, resourceVersion string) encoded {
	var message fieldsMessage
	message.text(1, string(uid))
	message.text(2, resourceVersion)
	return event(2, message)
}

func goneEvent(uid types.UID) encoded {
	var message fieldsMessage
	message.text(1, string(uid))
	return event(3, message)
}

func syncedEvent() encoded { return event(4, nil) }

func event(number protowire.Number, message []byte) encoded {
	var event fieldsMessage
	event.message(number, message)
	return encoded(event)
}

// A followerMessage is gatepost.v1.FollowerMessage: of a correction, a look, or that the sidecar is about to end.
type followerMessage struct {
	object          objectName
	resourceVersion string
	isLook          bool
	isDraining      bool
	// One of three.
	removeHead string
	fail       *metav1.Status
	delete     bool
}

func readFollowerMessage(message encoded) (*followerMessage, error) {
	said := &followerMessage{}
	err := eachField(message, func(number protowire.Number, _ uint64, bytes []byte) error {
		if bytes == nil {
			return nil
		}
		said.isLook, said.isDraining = number == 2, number == 3
		return eachField(bytes, func(number protowire.Number, _ uint64, bytes []byte) error {
			if bytes == nil {
				return nil
			}
			said.object.read(number, bytes)
			switch number {
			case 6:
				said.resourceVersion = string(bytes)
			case 7:
				said.removeHead = string(bytes)
			case 8:
				said.fail = &metav1.Status{}
				return said.fail.Unmarshal(bytes)
			case 9:
				said.delete = true
			}
			return nil
		})
	})
	if err != nil {
		return nil, errUnreadable
	}
	return said, nil
}

// storedResult returns a Status as the result of an object: a failure that can be stored.
func storedResult(from metav1.Status) *metav1.Status {
	result := &metav1.Status{Status: metav1.StatusFailure, Message: cut(from.Message, maxResultText), Reason: from.Reason, Code: from.Code}
	if from.Details != nil {
		details := *from.Details
		details.Causes = nil
		for _, cause := range from.Details.Causes[:min(len(from.Details.Causes), maxCauses)] {
			cause.Message, cause.Field = cut(cause.Message, maxErrorText), cut(cause.Field, maxErrorText)
			details.Causes = append(details.Causes, cause)
		}
		result.Details = &details
	}
	return result
}
