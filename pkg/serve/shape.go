// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"navix.sh/atoll/pkg/problem"
)

// A message in memory takes many times the size of its encoding: two bytes of JSON become a Struct. So the number of its values is bounded
// before it is decoded.
const (
	maxValues = 10_000 // of a JSON text
	maxDepth  = 64     // of a JSON text
	// A JSON value becomes up to three messages: Struct, its entry and its Value.
	maxElements = 2 * maxValues
	maxNesting  = 3 * maxDepth
)

// checkJSON refuses a text with too many values, or with values nested too deep. A text that is not JSON passes: the decoder
// refuses it.
func checkJSON(text []byte) error {
	values, depth, quoted := 1, 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted:
			switch c {
			case '\\':
				i++
			case '"':
				quoted = false
			}
		case c == '"':
			quoted = true
		case c == '{' || c == '[':
			depth++
			values++
		case c == '}' || c == ']':
			depth--
		case c == ',':
			values++
		}
		if depth > maxDepth {
			return tooDeep(maxDepth)
		}
		if values > maxValues {
			return tooMany(maxValues)
		}
	}
	return nil
}

// checkProto bounds a message in wire format in the same way.
func checkProto(wire []byte, message protoreflect.MessageDescriptor) error {
	left := maxElements
	return countProto(wire, message, maxNesting, &left)
}

func countProto(wire []byte, message protoreflect.MessageDescriptor, depth int, left *int) error {
	if depth == 0 {
		return tooDeep(maxNesting)
	}
	for len(wire) > 0 {
		number, kind, n := protowire.ConsumeTag(wire)
		if n < 0 || kind == protowire.StartGroupType || kind == protowire.EndGroupType {
			return problem.New(problem.Invalid, "the request is no %s", message.FullName())
		}
		wire = wire[n:]
		if n = protowire.ConsumeFieldValue(number, kind, wire); n < 0 {
			return problem.New(problem.Invalid, "the request is no %s", message.FullName())
		}
		value := wire[:n]
		wire = wire[n:]
		field := message.Fields().ByNumber(number)
		if field == nil {
			continue // kept as bytes
		}
		switch {
		case kind == protowire.BytesType && field.Message() != nil:
			*left--
			inner, _ := protowire.ConsumeBytes(value)
			if err := countProto(inner, field.Message(), depth-1, left); err != nil {
				return err
			}
		case kind == protowire.BytesType && field.IsList() && field.Kind() != protoreflect.StringKind && field.Kind() != protoreflect.BytesKind:
			*left -= n // packed: at least a byte for each
		case field.IsList():
			*left--
		}
		if *left < 0 {
			return tooMany(maxElements)
		}
	}
	return nil
}

func tooMany(most int) error {
	return problem.InvalidField("body", "more values", fmt.Sprintf("at most %d values", most))
}

func tooDeep(most int) error {
	return problem.InvalidField("body", "deeper nesting", fmt.Sprintf("at most %d levels", most))
}

func tooLarge(most int) error {
	return problem.InvalidField("body", "more bytes", fmt.Sprintf("at most %d bytes", most))
}
