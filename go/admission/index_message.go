package admission

import (
	"errors"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

const (
	// maxIndexBytes bounds a message with an index. Gatepost has no longer one: beyond 4,096 resources or 128 KiB of text
	// in a phase it says that every request is to be sent.
	maxIndexBytes = 1 << 20
	// maxIndexEntries bounds the pairs of a group and a resource in the rules of one phase.
	maxIndexEntries = 1 << 13
)

// Field numbers of gatepost.v1 IndexPoll, IndexBeat, IndexRules, PhaseRules and IndexRule.
const (
	fieldSequence = 1
	fieldVersion  = 2
	fieldValidFor = 3
	fieldRules    = 4

	fieldMutating   = 1
	fieldValidating = 2

	fieldAll       = 1
	fieldPhaseRule = 2

	fieldOperations      = 1
	fieldGroups          = 2
	fieldVersions        = 3
	fieldResources       = 4
	fieldScope           = 5
	fieldNamespaces      = 6
	fieldProtobufObjects = 7
)

// An indexPoll is gatepost.v1.IndexPoll.
type indexPoll struct{ sequence, version uint64 }

func (p *indexPoll) marshal() []byte {
	message := protowire.AppendVarint(protowire.AppendTag(nil, fieldSequence, protowire.VarintType), p.sequence)
	return protowire.AppendVarint(protowire.AppendTag(message, fieldVersion, protowire.VarintType), p.version)
}

// An indexBeat is gatepost.v1.IndexBeat.
type indexBeat struct {
	sequence, version uint64
	validFor          time.Duration
	// nil if the message has none.
	index *index
	// What makes the message unusable. An error of its decoding would be one of gRPC, and look like a lost connection.
	malformed error
}

var (
	errIndexEncoding = errors.New("it is no valid protobuf message of its kind")
	errTwoPhases     = errors.New("a rule index has the rules of both phases")
	errTooManyRules  = errors.New("a rule index has too many rules")
	errNoRule        = errors.New("a rule of a rule index has an unknown or missing part")
)

func (b *indexBeat) unmarshal(message []byte) error {
	*b = indexBeat{}
	return eachField(message, func(number protowire.Number, value uint64, bytes []byte) error {
		var err error
		switch {
		case number == fieldSequence && bytes == nil:
			b.sequence = value
		case number == fieldVersion && bytes == nil:
			b.version = value
		case number == fieldValidFor && bytes == nil:
			b.validFor = time.Duration(min(value, uint64(maxValidity/time.Millisecond))) * time.Millisecond
		case number == fieldRules && bytes != nil:
			b.index, err = readIndex(bytes)
		case number <= fieldRules:
			err = errIndexEncoding
		}
		return err
	})
}

// eachField calls a function for each field that is a number or has bytes, which then are not nil; it passes over others.
func eachField(message []byte, field func(number protowire.Number, value uint64, bytes []byte) error) error {
	for len(message) > 0 {
		number, kind, length := protowire.ConsumeTag(message)
		if length < 0 {
			return errIndexEncoding
		}
		message = message[length:]
		var value uint64
		var bytes []byte
		switch kind {
		case protowire.VarintType:
			value, length = protowire.ConsumeVarint(message)
		case protowire.BytesType:
			bytes, length = protowire.ConsumeBytes(message)
			if bytes == nil {
				bytes = []byte{}
			}
		default:
			length = protowire.ConsumeFieldValue(number, kind, message)
		}
		if length < 0 {
			return errIndexEncoding
		}
		message = message[length:]
		if kind == protowire.VarintType || kind == protowire.BytesType {
			if err := field(number, value, bytes); err != nil {
				return err
			}
		}
	}
	return nil
}

func readIndex(message []byte) (*index, error) {
	index := &index{}
	var found [2]bool
	err := eachField(message, func(number protowire.Number, _ uint64, bytes []byte) error {
		switch {
		case number != fieldMutating && number != fieldValidating:
			return nil
		case bytes == nil || found[number-1]:
			return errIndexEncoding
		}
		found[number-1] = true
		if number == fieldMutating {
			return index.mutating.read(bytes)
		}
		return index.validating.read(bytes)
	})
	// An absent phase must not be taken for one without rules.
	if err == nil && found != [2]bool{true, true} {
		err = errTwoPhases
	}
	if err != nil {
		return nil, err
	}
	return index, nil
}

func (p *phaseIndex) read(message []byte) error {
	*p = phaseIndex{exact: map[groupResource][]indexRule{}, byResource: map[string][]indexRule{}, byGroup: map[string][]indexRule{}}
	entries := 0
	return eachField(message, func(number protowire.Number, value uint64, bytes []byte) error {
		switch {
		case number == fieldAll && bytes == nil:
			p.all = value != 0
		case number == fieldPhaseRule && bytes != nil:
			return p.readRule(bytes, &entries)
		case number <= fieldPhaseRule:
			return errIndexEncoding
		}
		return nil
	})
}

// readRule adds a rule for each of its groups and resources.
func (p *phaseIndex) readRule(message []byte, entries *int) error {
	var texts [fieldNamespaces + 1][]string
	need := inJSON
	err := eachField(message, func(number protowire.Number, value uint64, bytes []byte) error {
		switch {
		case number == fieldProtobufObjects && bytes == nil:
			need = inJSON
			if value != 0 {
				need = inProtobuf
			}
			return nil
		case number == fieldProtobufObjects:
			return errIndexEncoding
		case number > fieldNamespaces:
			// Of a later version: what it narrows is sent without need.
			return nil
		case bytes == nil:
			return errIndexEncoding
		}
		texts[number] = append(texts[number], string(bytes))
		return nil
	})
	if err != nil {
		return err
	}
	rule := indexRule{versions: texts[fieldVersions], need: need}
	for _, name := range texts[fieldOperations] {
		operation, ok := operation(name)
		if !ok {
			return errNoRule
		}
		rule.operations |= operation
	}
	for _, version := range rule.versions {
		if version == "*" {
			rule.versions = nil
			break
		}
	}
	if len(texts[fieldScope]) != 1 {
		return errNoRule
	}
	switch admissionregistrationv1.ScopeType(texts[fieldScope][0]) {
	case admissionregistrationv1.NamespacedScope:
		rule.scope = inNamespaces
	case admissionregistrationv1.ClusterScope:
		rule.scope = outsideNamespaces
	case admissionregistrationv1.AllScopes:
		rule.scope = anyScope
	default:
		return errNoRule
	}
	for _, namespace := range texts[fieldNamespaces] {
		if rule.namespaces == nil {
			rule.namespaces = make(map[string]struct{}, len(texts[fieldNamespaces]))
		}
		rule.namespaces[namespace] = struct{}{}
	}
	for _, list := range [][]string{texts[fieldOperations], texts[fieldGroups], texts[fieldVersions], texts[fieldResources]} {
		if len(list) == 0 {
			return errNoRule
		}
	}
	// Compared before they are multiplied, which cannot overflow then.
	groups, resources := len(texts[fieldGroups]), len(texts[fieldResources])
	if groups > maxIndexEntries || resources > maxIndexEntries || groups*resources > maxIndexEntries-*entries {
		return errTooManyRules
	}
	*entries += groups * resources
	for _, group := range texts[fieldGroups] {
		for _, resource := range texts[fieldResources] {
			name, subresource, _ := strings.Cut(resource, "/")
			rule.subresource = subresource
			p.add(group, name, rule)
		}
	}
	return nil
}

func (p *phaseIndex) add(group, resource string, rule indexRule) {
	switch {
	case group == "*" && resource == "*":
		p.anywhere = append(p.anywhere, rule)
	case group == "*":
		p.byResource[resource] = append(p.byResource[resource], rule)
	case resource == "*":
		p.byGroup[group] = append(p.byGroup[group], rule)
	default:
		key := groupResource{group, resource}
		p.exact[key] = append(p.exact[key], rule)
	}
}
