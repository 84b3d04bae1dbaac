// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// use says in what a message is used.
type use int

const (
	requests use = 1 << iota
	responses
)

// known are the messages with a special JSON form.
var known = map[protoreflect.FullName]object{
	"google.protobuf.Empty":     {{"type", "object"}},
	"google.protobuf.Timestamp": {{"type", "string"}, {"format", "date-time"}},
	"google.protobuf.Duration":  {{"$ref", "#/components/schemas/Duration"}},
	"google.protobuf.Struct":    {{"type", "object"}, {"additionalProperties", true}},
	"google.protobuf.FieldMask": {{"type", "string"}},
}

// schemas are the messages and enums that operations use, by their names without the package.
type schemas struct {
	messages map[string]*message
	enums    map[string]object
	of       map[string]protoreflect.FullName // ensures that no two have the same name
	partial  map[protoreflect.FullName]bool   // messages of which a response may contain only some fields
	whole    map[string]object                // these messages with all fields
}

type message struct {
	from   *protogen.Message
	uses   use
	fields object
}

func newSchemas() schemas {
	return schemas{
		messages: map[string]*message{}, enums: map[string]object{}, of: map[string]protoreflect.FullName{},
		partial: map[protoreflect.FullName]bool{}, whole: map[string]object{},
	}
}

// markPartial marks a message, and those in it.
func (s *schemas) markPartial(m *protogen.Message) {
	if _, ok := known[m.Desc.FullName()]; ok || s.partial[m.Desc.FullName()] {
		return
	}
	s.partial[m.Desc.FullName()] = true
	for _, field := range m.Fields {
		if field.Message != nil {
			s.markPartial(field.Message)
		}
	}
}

// name returns the own name of a message or enum, after the names of those in which it is nested.
func (s *schemas) name(d protoreflect.Descriptor) (string, error) {
	name := strings.ReplaceAll(strings.TrimPrefix(string(d.FullName()), string(d.ParentFile().Package())+"."), ".", "")
	if other, taken := s.of[name]; taken && other != d.FullName() {
		return "", fmt.Errorf("%s and %s have one name in the document, %s", other, d.FullName(), name)
	}
	s.of[name] = d.FullName()
	return name, nil
}

// message adds a message, and returns a reference to it.
func (s *schemas) message(m *protogen.Message, without map[string]bool, uses use) (object, error) {
	if form, ok := known[m.Desc.FullName()]; ok {
		return form, nil
	}
	if m.Desc.ParentFile().Package() == "google.protobuf" {
		return nil, fmt.Errorf("%s has no form in the document yet", m.Desc.FullName())
	}
	name, err := s.name(m.Desc)
	if err != nil {
		return nil, err
	}
	added := s.messages[name]
	if added != nil && added.uses&uses == uses {
		return ref("schemas", name), nil
	}
	if added == nil {
		added = &message{from: m}
		s.messages[name] = added
	}
	added.uses |= uses
	added.fields = nil
	for _, field := range m.Fields {
		if without[string(field.Desc.Name())] {
			continue
		}
		if err := s.parts(field, uses); err != nil {
			return nil, err
		}
		schema, err := s.value(field)
		if err != nil {
			return nil, err
		}
		added.fields.add(field.Desc.JSONName(), schema)
	}
	return ref("schemas", name), nil
}

// wholly returns a reference to a partial message with all its fields, for a response that consists of it.
func (s *schemas) wholly(name string, m *protogen.Message, part object) object {
	s.whole["Whole"+name] = object{
		{"description", "A " + name + " with all fields that it always has."}, {"allOf", []any{part}}, {"required", always(m)},
	}
	return ref("schemas", "Whole"+name)
}

// parts adds the messages of a field.
func (s *schemas) parts(field *protogen.Field, uses use) error {
	switch {
	case field.Desc.IsMap():
		return s.parts(field.Message.Fields[1], uses)
	case field.Message != nil:
		_, err := s.message(field.Message, nil, uses)
		return err
	}
	return nil
}

// value returns the schema of a field.
func (s *schemas) value(field *protogen.Field) (object, error) {
	var out object
	switch {
	case field.Desc.IsMap():
		of, err := s.single(field.Message.Fields[1])
		if err != nil {
			return nil, err
		}
		out = object{{"type", "object"}, {"additionalProperties", of}}
	case field.Desc.IsList():
		of, err := s.single(field)
		if err != nil {
			return nil, err
		}
		out = object{{"type", "array"}, {"items", of}}
	default:
		of, err := s.single(field)
		if err != nil {
			return nil, err
		}
		out = append(out, of...)
	}
	if text := comment(field.Comments); text != "" {
		out.add("description", text)
	}
	return out, nil
}

func (s *schemas) single(field *protogen.Field) (object, error) {
	switch field.Desc.Kind() {
	case protoreflect.BoolKind:
		return object{{"type", "boolean"}}, nil
	case protoreflect.StringKind:
		return object{{"type", "string"}}, nil
	case protoreflect.BytesKind:
		return object{{"type", "string"}, {"format", "byte"}}, nil
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Uint32Kind:
		return object{{"type", "integer"}, {"format", field.Desc.Kind().String()}}, nil
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Uint64Kind: // as text, because JavaScript has no such numbers
		return object{{"type", "string"}, {"format", field.Desc.Kind().String()}}, nil
	case protoreflect.DoubleKind, protoreflect.FloatKind:
		return object{{"type", "number"}, {"format", field.Desc.Kind().String()}}, nil
	case protoreflect.EnumKind:
		return s.enum(field.Enum)
	case protoreflect.MessageKind:
		if form, ok := known[field.Message.Desc.FullName()]; ok {
			return form, nil
		}
		name, err := s.name(field.Message.Desc)
		return ref("schemas", name), err
	}
	return nil, fmt.Errorf("field %s of kind %s has no form in the document yet", field.Desc.FullName(), field.Desc.Kind())
}

func (s *schemas) enum(e *protogen.Enum) (object, error) {
	name, err := s.name(e.Desc)
	if err != nil {
		return nil, err
	}
	var names, told []string
	if text := comment(e.Comments); text != "" {
		told = append(told, text)
	}
	for _, value := range e.Values {
		names = append(names, string(value.Desc.Name()))
		if text := comment(value.Comments); text != "" {
			told = append(told, fmt.Sprintf("- `%s`: %s", value.Desc.Name(), text))
		}
	}
	schema := object{{"type", "string"}, {"enum", names}}
	if len(told) > 0 {
		schema.add("description", strings.Join(told, "\n"))
	}
	s.enums[name] = schema
	return ref("schemas", name), nil
}

// done returns all schemas. A response has all fields without presence, or those its caller asked for; a request has no additional fields.
func (s *schemas) done() map[string]any {
	out := map[string]any{}
	for name, enum := range s.enums {
		out[name] = enum
	}
	for name, whole := range s.whole {
		out[name] = whole
	}
	for name, m := range s.messages {
		schema := object{{"type", "object"}}
		if text := comment(m.from.Comments); text != "" {
			schema.add("description", text)
		}
		if names := always(m.from); len(names) > 0 && m.uses == responses && !s.partial[m.from.Desc.FullName()] {
			schema.add("required", names)
		}
		if len(m.fields) > 0 {
			schema.add("properties", m.fields)
		}
		if m.uses == requests {
			schema.add("additionalProperties", false)
		}
		out[name] = schema
	}
	return out
}

// always returns the fields that a whole message always has in a response.
func always(m *protogen.Message) (names []string) {
	for _, field := range m.Fields {
		if !field.Desc.HasPresence() {
			names = append(names, field.Desc.JSONName())
		}
	}
	return names
}

func fieldOf(m *protogen.Message, name string) *protogen.Field {
	for _, field := range m.Fields {
		if string(field.Desc.Name()) == name {
			return field
		}
	}
	return nil
}

func ref(kind, name string) object { return object{{"$ref", "#/components/" + kind + "/" + name}} }

var (
	snake = regexp.MustCompile(`\b[a-z]+(_[a-z]+)+\b`)
	spans = regexp.MustCompile(`\s+`)
)

// comment returns the protobuf comment, with the JSON names of fields.
func comment(c protogen.CommentSet) string {
	text := strings.TrimSpace(spans.ReplaceAllString(string(c.Leading)+" "+string(c.Trailing), " "))
	return snake.ReplaceAllStringFunc(text, jsonName)
}

func jsonName(name string) string {
	parts := strings.Split(name, "_")
	for i, part := range parts[1:] {
		parts[i+1] = strings.ToUpper(part[:1]) + part[1:]
	}
	return strings.Join(parts, "")
}

func lowerFirst(name string) string { return strings.ToLower(name[:1]) + name[1:] }

// words writes CreateSandbox as "Create sandbox".
func words(name string) string {
	var out strings.Builder
	for i, r := range name {
		if i > 0 && unicode.IsUpper(r) {
			out.WriteByte(' ')
			r = unicode.ToLower(r)
		}
		out.WriteRune(r)
	}
	return out.String()
}
