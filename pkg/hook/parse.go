// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"google.golang.org/protobuf/types/known/structpb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"navix.sh/atoll/pkg/clip"
	"navix.sh/atoll/pkg/problem"
)

// Bounds of a request's hooks.
const (
	MaxHooks   = 8
	MaxSize    = 32 << 10 // bytes of JSON
	MinTimeout = 100 * time.Millisecond
	MaxTimeout = 5 * time.Minute
	MaxRetries = 20

	maxName    = 63
	maxCommand = 64
	maxHeaders = 32
	maxPath    = 2048
)

var (
	methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"}
	schemes = []string{"HTTP", "HTTPS"}
	token   = regexp.MustCompile("^[-!#$%&'*+.^_`|~0-9A-Za-z]+$") // RFC 9110's
)

// Parse parses the hooks of a request, or returns everything that is wrong with them. Faults contain no part of a command, a header or a
// body.
func Parse(list []*structpb.Struct) ([]Action, []problem.Field) {
	var f faults
	if len(list) > MaxHooks {
		f.add("postStartHooks", fmt.Sprintf("%d of them", len(list)), fmt.Sprintf("at most %d", MaxHooks))
		return nil, f
	}
	actions := make([]Action, 0, len(list))
	for i, s := range list {
		actions = append(actions, f.action(object{path: fmt.Sprintf("postStartHooks[%d]", i), fields: s.GetFields()}))
	}
	if len(f) > 0 {
		return nil, f
	}
	if text, err := Encode(actions); err != nil || len(text) > MaxSize {
		f.add("postStartHooks", fmt.Sprintf("%d bytes", len(text)), fmt.Sprintf("at most %d bytes of JSON", MaxSize))
		return nil, f
	}
	return actions, nil
}

// Faults returns the faults in a request's hooks.
func Faults(list []*structpb.Struct) []problem.Field {
	_, f := Parse(list)
	return f
}

type faults []problem.Field

func (f *faults) add(field, value, valid string) {
	*f = append(*f, problem.Field{Field: field, Value: value, Valid: valid})
}

// object is a JSON object and its path in the request.
type object struct {
	path   string
	fields map[string]*structpb.Value
}

func (o object) at(name string) string { return o.path + "." + name }

// only rejects unknown fields, because a misspelt field would have no effect.
func (f *faults) only(o object, known ...string) {
	for _, name := range slices.Sorted(maps.Keys(o.fields)) {
		if !slices.Contains(known, name) {
			f.add(o.at(shown(name)), "", "one of "+strings.Join(known, ", "))
		}
	}
}

func (f *faults) action(o object) Action {
	f.only(o, "name", "exec", "http", "timeout", "retries")
	a := Action{Name: f.text(o, "name", maxName, "at most 63 printable characters")}
	exec, isExec := f.object(o, "exec")
	request, isHTTP := f.object(o, "http")
	if isExec == isHTTP {
		f.add(o.path, "", "either exec or http")
		return a
	}
	if isExec {
		a.Exec = f.exec(exec)
	} else {
		a.HTTP = f.http(request)
	}
	const validTimeout = problem.ValidDuration + ", from 100ms to 5m"
	if text := f.text(o, "timeout", 32, validTimeout); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d < MinTimeout || d > MaxTimeout {
			f.add(o.at("timeout"), text, validTimeout)
		}
		a.Timeout = &metav1.Duration{Duration: d}
	}
	if n, ok := f.number(o, "retries", 0, MaxRetries); ok {
		a.Retries = &n
	}
	return a
}

func (f *faults) exec(o object) *Exec {
	f.only(o, "command", "container")
	e := &Exec{Container: f.text(o, "container", 63, "the name of a container")}
	if e.Container != "" && len(validation.IsDNS1123Label(e.Container)) > 0 {
		f.add(o.at("container"), shown(e.Container), "the name of a container")
	}
	const valid = `a list of 1 to 64 strings, the first of them the program, such as ["sh", "-c", "true"]`
	command := o.fields["command"]
	if command.GetListValue() == nil {
		f.add(o.at("command"), kindOf(command), valid)
		return e
	}
	parts := command.GetListValue().GetValues()
	for _, part := range parts {
		s, ok := part.GetKind().(*structpb.Value_StringValue)
		if !ok || strings.Contains(s.StringValue, "\x00") {
			f.add(o.at("command"), "a list with "+kindOf(part), valid)
			return e
		}
		e.Command = append(e.Command, s.StringValue)
	}
	if len(parts) == 0 || len(parts) > maxCommand || e.Command[0] == "" {
		f.add(o.at("command"), fmt.Sprintf("%d parts", len(parts)), valid)
	}
	return e
}

func (f *faults) http(o object) *HTTP {
	f.only(o, "port", "path", "scheme", "method", "headers", "body")
	h := &HTTP{
		Path:   f.text(o, "path", maxPath, "a path of at most 2048 characters"),
		Scheme: f.oneOf(o, "scheme", schemes), Method: f.oneOf(o, "method", methods),
	}
	if port, ok := f.number(o, "port", 1, 65535); ok {
		h.Port = port
	} else if o.fields["port"] == nil {
		f.add(o.at("port"), "", "1 to 65535")
	}
	if _, err := url.ParseRequestURI(h.Path); h.Path != "" && (err != nil || !strings.HasPrefix(h.Path, "/") ||
		strings.HasPrefix(h.Path, "//")) {
		f.add(o.at("path"), shown(h.Path), "a path, with a query or without, that begins with one /")
	}
	if v, ok := o.fields["body"]; ok {
		var err error
		if h.Body, err = f.value(o.at("body"), v); err != nil {
			f.add(o.at("body"), kindOf(v), "a string, or valueFrom with a secretKeyRef")
		}
	}
	f.headers(o, h)
	return h
}

func (f *faults) headers(o object, h *HTTP) {
	headers, ok := f.object(o, "headers")
	if !ok {
		return
	}
	if len(headers.fields) > maxHeaders {
		f.add(headers.path, fmt.Sprintf("%d of them", len(headers.fields)), "at most 32")
		return
	}
	h.Headers = map[string]Value{}
	for _, name := range slices.Sorted(maps.Keys(headers.fields)) {
		value, err := f.value(headers.at(shown(name)), headers.fields[name])
		if err != nil || !token.MatchString(name) || !IsHeaderValue(value.Text) {
			f.add(headers.at(shown(name)), "", "an HTTP header: a name, and a string of one line, or valueFrom with a secretKeyRef")
			continue
		}
		h.Headers[name] = value
	}
}

// IsHeaderValue reports whether a text can be the value of an HTTP header.
func IsHeaderValue(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}

func (f *faults) object(o object, name string) (object, bool) {
	v, ok := o.fields[name]
	if !ok {
		return object{}, false
	}
	s, isObject := v.GetKind().(*structpb.Value_StructValue)
	if !isObject {
		f.add(o.at(name), kindOf(v), "an object")
		return object{path: o.at(name)}, true
	}
	return object{path: o.at(name), fields: s.StructValue.GetFields()}, true
}

func (f *faults) text(o object, name string, most int, valid string) string {
	v, ok := o.fields[name]
	if !ok {
		return ""
	}
	s, isText := v.GetKind().(*structpb.Value_StringValue)
	if !isText || len(s.StringValue) > most || strings.ContainsFunc(s.StringValue, func(r rune) bool { return !unicode.IsPrint(r) }) {
		value := kindOf(v)
		if isText {
			value = shown(s.StringValue)
		}
		f.add(o.at(name), value, valid)
		return ""
	}
	return s.StringValue
}

func (f *faults) oneOf(o object, name string, known []string) string {
	value := f.text(o, name, maxName, "one of "+strings.Join(known, ", "))
	if value != "" && !slices.Contains(known, value) {
		f.add(o.at(name), shown(value), "one of "+strings.Join(known, ", "))
	}
	return value
}

// number returns false if the field is missing or is not a number in the range.
func (f *faults) number(o object, name string, least, most int32) (int32, bool) {
	v, ok := o.fields[name]
	if !ok {
		return 0, false
	}
	n, isNumber := v.GetKind().(*structpb.Value_NumberValue)
	if !isNumber || n.NumberValue != float64(int64(n.NumberValue)) || n.NumberValue < float64(least) || n.NumberValue > float64(most) {
		shown := kindOf(v)
		if isNumber {
			shown = strconv.FormatFloat(n.NumberValue, 'g', -1, 64)
		}
		f.add(o.at(name), shown, fmt.Sprintf("%d to %d", least, most))
		return 0, false
	}
	return int32(n.NumberValue), true
}

// kindOf returns the type of a value, without its content.
func kindOf(v *structpb.Value) string {
	switch v.GetKind().(type) {
	case nil:
		return ""
	case *structpb.Value_StringValue:
		return "a string"
	case *structpb.Value_NumberValue:
		return "a number"
	case *structpb.Value_BoolValue:
		return "a boolean"
	case *structpb.Value_ListValue:
		return "a list"
	case *structpb.Value_StructValue:
		return "an object"
	default:
		return "null"
	}
}

// shown truncates the part of a request that an error contains.
func shown(s string) string { return clip.Text(s, 80) }

func structs(text []byte) ([]*structpb.Struct, error) {
	var raw []map[string]any
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, fmt.Errorf("reading hooks: %w", err)
	}
	list := make([]*structpb.Struct, 0, len(raw))
	for _, m := range raw {
		s, err := structpb.NewStruct(m)
		if err != nil {
			return nil, fmt.Errorf("reading hooks: %w", err)
		}
		list = append(list, s)
	}
	return list, nil
}
