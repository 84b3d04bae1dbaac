// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/compiler/protogen"

	"navix.sh/atoll/pkg/problem"
)

// rule is the HTTP rule of a method.
type rule struct {
	Selector string `json:"selector"`
	Body     string `json:"body"`
	Get      string `json:"get"`
	Put      string `json:"put"`
	Post     string `json:"post"`
	Patch    string `json:"patch"`
	Delete   string `json:"delete"`
}

func (r rule) verb() (verb, path string) {
	for verb, path := range map[string]string{"get": r.Get, "put": r.Put, "post": r.Post, "patch": r.Patch, "delete": r.Delete} {
		if path != "" {
			return verb, path
		}
	}
	return "", ""
}

// document collects operations by path and verb, and their schemas.
type document struct {
	additions additions
	schemas   schemas
	paths     map[string]map[string]any
}

// generate returns the document's text.
func generate(plugin *protogen.Plugin, rules []rule, a additions) ([]byte, error) {
	methods := map[string]*protogen.Method{}
	messages := map[string]*protogen.Message{}
	for _, file := range plugin.Files {
		for _, m := range file.Messages {
			messages[string(m.Desc.Name())] = m
		}
		for _, service := range file.Services {
			for _, method := range service.Methods {
				methods[string(method.Desc.FullName())] = method
			}
		}
	}
	d := document{additions: a, schemas: newSchemas(), paths: map[string]map[string]any{}}
	for _, name := range a.Partial {
		m := messages[name]
		if m == nil {
			return nil, fmt.Errorf("the additions name the message %s, which the protobuf does not have", name)
		}
		d.schemas.markPartial(m)
	}
	known := map[string]bool{}
	for _, r := range rules {
		method := methods[r.Selector]
		if method == nil {
			return nil, fmt.Errorf("the HTTP rules name %s, which the protobuf does not have", r.Selector)
		}
		name := string(method.Parent.Desc.Name()) + "." + string(method.Desc.Name())
		known[name] = true
		more := a.Calls[name]
		if more.Unbuilt {
			continue
		}
		if err := d.call(method, r, more); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for _, name := range more.Messages {
			m := messages[name]
			if m == nil {
				return nil, fmt.Errorf("the additions name the message %s, which the protobuf does not have", name)
			}
			if _, err := d.schemas.message(m, nil, responses); err != nil {
				return nil, err
			}
		}
	}
	for name := range a.Calls {
		if !known[name] {
			return nil, fmt.Errorf("the additions name %s, which has no HTTP rule", name)
		}
	}
	for path, operations := range a.Paths {
		for verb, operation := range operations {
			if err := d.written(path, verb, operation); err != nil {
				return nil, fmt.Errorf("%s %s: %w", verb, path, err)
			}
		}
	}
	return d.text()
}

var parameterName = regexp.MustCompile(`\{(\w+)\}`)

// call adds the operation of a method.
func (d *document) call(method *protogen.Method, r rule, more call) error {
	verb, path := r.verb()
	inPath := map[string]bool{}
	var parameters []any
	for _, match := range parameterName.FindAllStringSubmatch(path, -1) {
		inPath[match[1]] = true
		field := fieldOf(method.Input, match[1])
		if field == nil {
			return fmt.Errorf("the path %s names %s, which %s does not have", path, match[1], method.Input.Desc.Name())
		}
		schema, err := d.schemas.value(field)
		if err != nil {
			return err
		}
		parameters = append(parameters, parameter(field, "path", schema, true))
	}
	for _, p := range more.Parameters {
		parameters = append(parameters, p)
	}
	operation := object{
		{"tags", []string{string(method.Parent.Desc.Name())}},
		{"operationId", lowerFirst(string(method.Desc.Name()))},
		{"summary", words(string(method.Desc.Name()))},
	}
	if text := comment(method.Comments); text != "" {
		operation.add("description", text)
	}
	body, query, err := d.input(method.Input, r.Body, inPath, more.Required)
	if err != nil {
		return err
	}
	if parameters = append(parameters, query...); len(parameters) > 0 {
		operation.add("parameters", parameters)
	}
	if body != nil {
		operation.add("requestBody", body)
	}
	output, err := d.schemas.message(method.Output, nil, responses)
	if err != nil {
		return err
	}
	if d.schemas.partial[method.Output.Desc.FullName()] {
		output = d.schemas.wholly(string(method.Output.Desc.Name()), method.Output, output)
	}
	reasons := slices.Concat(d.additions.Everywhere, more.Errors)
	if len(inPath) > 0 {
		reasons = append(reasons, string(problem.NotFound))
	}
	done := content("application/json", output)
	for kind, form := range more.Content {
		done.add(kind, form)
	}
	all := map[string]any{"200": object{{"description", "Done."}, {"content", done}}}
	if err := addErrors(all, reasons); err != nil {
		return err
	}
	operation.add("responses", all)
	return d.add(path, verb, operation)
}

// input returns the body and the query of a call.
func (d *document) input(m *protogen.Message, body string, inPath map[string]bool, required []string) (any, []any, error) {
	if body == "*" {
		schema, err := d.schemas.message(m, inPath, requests)
		if err != nil {
			return nil, nil, err
		}
		if len(required) > 0 {
			schema = object{{"allOf", []any{schema}}, {"required", required}}
		}
		return object{{"required", len(required) > 0}, {"content", content("application/json", schema)}}, nil, nil
	}
	var query []any
	var whole any
	for _, field := range m.Fields {
		name := string(field.Desc.Name())
		if inPath[name] {
			continue
		}
		schema, err := d.schemas.value(field)
		if err != nil {
			return nil, nil, err
		}
		if name == body {
			whole = object{{"required", true}, {"content", content("application/json", schema)}}
			continue
		}
		query = append(query, parameter(field, "query", schema, false))
	}
	if body != "" && whole == nil {
		return nil, nil, fmt.Errorf("body %q is not supported, want *, a field or none", body)
	}
	return whole, query, nil
}

// written adds a handwritten operation.
func (d *document) written(path, verb string, operation map[string]any) error {
	all, _ := operation["responses"].(map[string]any)
	if all == nil {
		all = map[string]any{}
	}
	listed, _ := operation["errors"].([]any)
	reasons := make([]string, 0, len(listed))
	for _, reason := range listed {
		reasons = append(reasons, fmt.Sprint(reason))
	}
	if err := addErrors(all, reasons); err != nil {
		return err
	}
	operation = maps.Clone(operation)
	delete(operation, "errors")
	operation["responses"] = all
	return d.add(path, verb, operation)
}

func (d *document) add(path, verb string, operation any) error {
	path = parameterName.ReplaceAllStringFunc(path, func(name string) string { return "{" + jsonName(name[1:len(name)-1]) + "}" })
	if d.paths[path] == nil {
		d.paths[path] = map[string]any{}
	}
	if _, twice := d.paths[path][verb]; twice {
		return fmt.Errorf("the path %s has %s twice", path, verb)
	}
	d.paths[path][verb] = operation
	return nil
}

// addErrors adds the statuses of reasons.
func addErrors(responses map[string]any, reasons []string) error {
	for _, reason := range reasons {
		if !slices.Contains(problem.Reasons(), problem.Reason(reason)) {
			return fmt.Errorf("error %q is not a reason; there are: %v", reason, problem.Reasons())
		}
		status := strconv.Itoa(problem.Reason(reason).HTTPStatus())
		responses[status] = object{{"$ref", "#/components/responses/" + status}}
	}
	return nil
}

// problems returns responses for all statuses that an error can have.
func problems() object {
	var out object
	byStatus := map[int][]problem.Reason{}
	for _, reason := range problem.Reasons() {
		byStatus[reason.HTTPStatus()] = append(byStatus[reason.HTTPStatus()], reason)
	}
	for _, status := range slices.Sorted(maps.Keys(byStatus)) {
		response := object{{"description", fmt.Sprintf("%s: %s", http.StatusText(status), list(byStatus[status]))}}
		switch status {
		case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			response.add("headers", object{{"Retry-After", ref("headers", "Retry-After")}})
		}
		response.add("content", content(problem.ContentType, object{{"allOf", []any{
			ref("schemas", "Problem"),
			object{{"type", "object"}, {"properties", object{
				{"status", object{{"const", status}}}, {"reason", object{{"enum", byStatus[status]}}},
			}}},
		}}}))
		out.add(strconv.Itoa(status), response)
	}
	return out
}

func list(reasons []problem.Reason) string {
	names := make([]string, 0, len(reasons))
	for _, r := range reasons {
		names = append(names, string(r))
	}
	return strings.Join(names, ", ")
}

// text encodes the document. Handwritten parts come first.
func (d *document) text() ([]byte, error) {
	var head map[string]any
	if err := json.Unmarshal(d.additions.Head, &head); err != nil {
		return nil, fmt.Errorf("reading the document's head: %w", err)
	}
	components, _ := head["components"].(map[string]any)
	if components == nil {
		return nil, fmt.Errorf("the document's head has no components")
	}
	written, _ := components["schemas"].(map[string]any)
	all := d.schemas.done()
	for name, schema := range written {
		if _, twice := all[name]; twice {
			return nil, fmt.Errorf("the schema %s is both written by hand and a message", name)
		}
		all[name] = schema
	}
	components["schemas"] = all
	components["responses"] = problems()
	out := object{{"openapi", "3.1.0"}}
	for _, name := range []string{"info", "servers", "security", "tags"} {
		out.add(name, head[name])
	}
	out.add("paths", d.paths)
	out.add("components", components)
	text, err := plain(out)
	if err != nil {
		return nil, err
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, text, "", "  "); err != nil {
		return nil, fmt.Errorf("indenting the document: %w", err)
	}
	return append(indented.Bytes(), '\n'), nil
}

func content(kind string, schema any) object { return object{{kind, object{{"schema", schema}}}} }

func parameter(field *protogen.Field, in string, schema object, required bool) object {
	schema = slices.DeleteFunc(slices.Clone(schema), func(m member) bool { return m.name == "description" })
	out := object{{"name", field.Desc.JSONName()}, {"in", in}}
	if required {
		out.add("required", true)
	}
	if text := comment(field.Comments); text != "" {
		out.add("description", text)
	}
	out.add("schema", schema)
	return out
}
