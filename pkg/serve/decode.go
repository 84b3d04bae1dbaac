// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"navix.sh/atoll/pkg/problem"
)

// Descriptions of the valid values of types whose JSON form protobuf defines.
const (
	ValidDuration  = problem.ValidDuration
	ValidTimestamp = "a time such as 2026-03-01T12:00:00Z"
)

// The messages with a special form in JSON.
const (
	durationType  = "google.protobuf.Duration"
	timestampType = "google.protobuf.Timestamp"
	structType    = "google.protobuf.Struct"
)

// strictJSON decodes bodies so that each error names the field, the value and what is valid. It accepts a duration in every form that Go
// parses.
type strictJSON struct{ runtime.JSONPb }

// Marshal writes a response.
func (s *strictJSON) Marshal(v any) ([]byte, error) {
	if masked, ok := v.(sparse); ok {
		return masked.marshal()
	}
	return s.JSONPb.Marshal(v)
}

// NewDecoder returns a decoder of one body.
func (s *strictJSON) NewDecoder(r io.Reader) runtime.Decoder {
	body, kept := r.(*keptBody)
	return runtime.DecoderFunc(func(v any) error {
		message, ok := v.(proto.Message)
		if !kept || !ok {
			return s.JSONPb.NewDecoder(r).Decode(v)
		}
		return body.decode(message)
	})
}

// decode reports invalid input to incoming.complete instead of returning an error.
func (b *keptBody) decode(into proto.Message) error {
	text, err := io.ReadAll(b)
	if err != nil {
		return err
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return io.EOF
	}
	if protojson.Unmarshal(text, into) == nil {
		return nil
	}
	proto.Reset(into)
	w := walk{in: b.in, decoder: json.NewDecoder(bytes.NewReader(text))}
	w.decoder.UseNumber()
	tree, err := w.value("")
	if err != nil {
		b.in.fault("body", "", fmt.Sprintf("one JSON object; it ends or has an error at byte %d", w.decoder.InputOffset()))
		return nil
	}
	end := w.decoder.InputOffset()
	if _, err = w.decoder.Token(); !errors.Is(err, io.EOF) {
		b.in.fault("body", "", fmt.Sprintf("one JSON object; there is more after byte %d", end))
		return nil
	}
	tree = w.message("", into.ProtoReflect().Descriptor(), tree)
	if len(b.in.faults) > 0 {
		return nil
	}
	if text, err = json.Marshal(tree); err == nil {
		err = protojson.Unmarshal(text, into)
	}
	if err != nil {
		proto.Reset(into)
		b.in.fault("body", "", "JSON as /openapi.json has it: "+err.Error())
	}
	return nil
}

// walk checks a JSON text against a message.
type walk struct {
	in      *incoming
	decoder *json.Decoder
}

// value reads the next value, and rejects an object that has the same name twice.
func (w *walk) value(path string) (any, error) {
	token, err := w.decoder.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('{'):
		object := map[string]any{}
		for w.decoder.More() {
			name, err := w.decoder.Token()
			if err != nil {
				return nil, err
			}
			w.text(path, name)
			key, _ := name.(string)
			if _, twice := object[key]; twice {
				w.in.fault(join(path, key), "given twice", "each name once")
			}
			if object[key], err = w.value(join(path, key)); err != nil {
				return nil, err
			}
		}
		_, err = w.decoder.Token()
		return object, err
	case json.Delim('['):
		list := []any{}
		for w.decoder.More() {
			element, err := w.value(fmt.Sprintf("%s[%d]", path, len(list)))
			if err != nil {
				return nil, err
			}
			list = append(list, element)
		}
		_, err = w.decoder.Token()
		return list, err
	}
	w.text(path, token)
	return token, nil
}

// text rejects a string with invalid UTF-8 or half of a surrogate pair. The decoder replaces these with U+FFFD, which would make different
// names equal.
func (w *walk) text(path string, token any) {
	if s, ok := token.(string); ok && strings.ContainsRune(s, utf8.RuneError) {
		w.in.fault(cmp.Or(path, "body"), clipped(s), "text in UTF-8")
	}
}

func join(path, name string) string {
	if path == "" {
		return clipped(name)
	}
	return path + "." + clipped(name)
}

// message checks an object, and returns it in the form that protojson reads.
func (w *walk) message(path string, m protoreflect.MessageDescriptor, value any) any {
	object, ok := value.(map[string]any)
	if !ok {
		if path == "" {
			path = "body"
		}
		w.in.fault(path, shown(value), "an object")
		return value
	}
	known := make([]protoreflect.FieldDescriptor, 0, m.Fields().Len())
	for i := range m.Fields().Len() {
		known = append(known, m.Fields().Get(i))
	}
	for name, value := range object {
		field := m.Fields().ByJSONName(name)
		if field == nil {
			field = m.Fields().ByTextName(name)
		}
		if field == nil {
			w.in.fault(join(path, name), shown(value), validNames(name, "a field", known))
			continue
		}
		object[name] = w.field(join(path, name), field, value)
	}
	return object
}

func (w *walk) field(path string, field protoreflect.FieldDescriptor, value any) any {
	switch {
	case value == nil:
	case field.IsMap():
		object, ok := value.(map[string]any)
		if !ok {
			w.in.fault(path, shown(value), "an object")
			return value
		}
		for name, element := range object {
			object[name] = w.single(join(path, name), field.MapValue(), element)
		}
	case field.IsList():
		list, ok := value.([]any)
		if !ok {
			w.in.fault(path, shown(value), "a list")
			return value
		}
		for i, element := range list {
			list[i] = w.single(fmt.Sprintf("%s[%d]", path, i), field, element)
		}
	default:
		return w.single(path, field, value)
	}
	return value
}

func (w *walk) single(path string, field protoreflect.FieldDescriptor, value any) any {
	if m := field.Message(); m != nil && m.FullName() != durationType && m.FullName() != timestampType {
		if m.FullName() != structType {
			return w.message(path, m, value)
		}
		if _, ok := value.(map[string]any); !ok {
			w.in.fault(path, shown(value), "an object")
		}
		return value
	}
	text, isText := value.(string)
	number, isNumber := value.(json.Number)
	_, isBool := value.(bool)
	fits := isText
	switch field.Kind() {
	case protoreflect.BoolKind:
		fits = isBool
	case protoreflect.StringKind, protoreflect.BytesKind, protoreflect.MessageKind:
	case protoreflect.EnumKind:
		fits = isText || isNumber
	default:
		fits = isText || isNumber
		if isNumber {
			text = whole(number)
		}
	}
	if !fits {
		w.in.fault(path, shown(value), validOf(field))
		return value
	}
	if isBool || field.Kind() == protoreflect.EnumKind && isNumber {
		return value
	}
	if valid := validScalar(field, &text); valid != "" {
		w.in.fault(path, shown(value), valid)
		return value
	}
	if isText {
		return text
	}
	return value
}

// whole writes a number such as 1e3 or 2.0 as a whole number, and leaves any other as it is.
func whole(n json.Number) string {
	if f, err := n.Float64(); err == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		return strconv.FormatInt(int64(f), 10)
	}
	return n.String()
}

// shown returns a value as an error message shows it. Values that may be large or secret are only named.
func shown(value any) string {
	switch v := value.(type) {
	case string:
		return clipped(v)
	case json.Number:
		return clipped(v.String())
	case bool:
		return strconv.FormatBool(v)
	case []any:
		return "a list"
	case map[string]any:
		return "an object"
	default:
		return "null"
	}
}

// plainSeconds is protobuf's form of a duration.
var plainSeconds = regexp.MustCompile(`^-?[0-9]{1,12}(\.[0-9]{1,9})?s$`)

// validScalar converts a duration to protobuf's form. For an invalid text it returns a description of the valid values, else "".
func validScalar(field protoreflect.FieldDescriptor, text *string) string {
	ok := true
	switch field.Kind() {
	case protoreflect.BoolKind:
		_, err := strconv.ParseBool(*text)
		ok = err == nil
	case protoreflect.EnumKind:
		number, err := strconv.ParseInt(*text, 10, 32)
		ok = field.Enum().Values().ByName(protoreflect.Name(*text)) != nil ||
			err == nil && field.Enum().Values().ByNumber(protoreflect.EnumNumber(number)) != nil
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		_, err := strconv.ParseInt(*text, 10, 32)
		ok = err == nil
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		_, err := strconv.ParseInt(*text, 10, 64)
		ok = err == nil
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		_, err := strconv.ParseUint(*text, 10, 32)
		ok = err == nil
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		_, err := strconv.ParseUint(*text, 10, 64)
		ok = err == nil
	case protoreflect.MessageKind:
		switch field.Message().FullName() {
		case durationType:
			ok = inSeconds(text)
		case timestampType:
			_, err := time.Parse(time.RFC3339Nano, *text)
			ok = err == nil
		}
	}
	if ok {
		return ""
	}
	return validOf(field)
}

// inSeconds writes a duration as protobuf does.
func inSeconds(text *string) bool {
	if plainSeconds.MatchString(*text) {
		return true
	}
	d, err := time.ParseDuration(*text)
	if err != nil {
		return false
	}
	sign := ""
	if d < 0 {
		sign, d = "-", -d
	}
	*text = fmt.Sprintf("%s%d.%09ds", sign, d/time.Second, d%time.Second)
	return true
}

// validOf describes the values of a field.
func validOf(field protoreflect.FieldDescriptor) string {
	switch field.Kind() {
	case protoreflect.BoolKind:
		return "true or false"
	case protoreflect.EnumKind:
		var names []string
		for i := range field.Enum().Values().Len() {
			if v := field.Enum().Values().Get(i); v.Number() != 0 {
				names = append(names, string(v.Name()))
			}
		}
		return "one of: " + strings.Join(names, ", ")
	case protoreflect.StringKind:
		return "a string"
	case protoreflect.MessageKind:
		switch field.Message().FullName() {
		case durationType:
			return ValidDuration
		case timestampType:
			return ValidTimestamp
		}
		return "an object"
	default:
		return "a whole number"
	}
}
