// SPDX-License-Identifier: Apache-2.0

// Command openapi checks an OpenAPI 3.1 document with a stock validator, and calls with their responses against it.
//
//	openapi DOCUMENT [EXCHANGES]
//
// In: a document, and a file of exchanges, one JSON object a line. Out: what is wrong, a line each; exit code 1 if anything is. A request
// that was refused as INVALID (400) or has no such path (404, 405) need not be as the document has it; its response must.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
	validation "github.com/pb33f/libopenapi-validator/errors"
	"github.com/pb33f/libopenapi-validator/schema_validation"
	v3 "github.com/pb33f/libopenapi/datamodel/high/v3"
)

// exchange is a request and its response.
type exchange struct {
	Method         string      `json:"method"`
	URL            string      `json:"url"`
	RequestHeader  http.Header `json:"requestHeader"`
	RequestBody    string      `json:"requestBody"`
	Status         int         `json:"status"`
	ResponseHeader http.Header `json:"responseHeader"`
	ResponseBody   string      `json:"responseBody"`
}

func main() {
	found, err := run(os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "openapi:", err)
		os.Exit(2)
	}
	if found > 0 {
		os.Exit(1)
	}
}

// run returns how many faults it has written.
func run(args []string, out io.Writer) (found int, err error) {
	if len(args) < 1 || len(args) > 2 {
		return 0, errors.New("usage: openapi DOCUMENT [EXCHANGES]")
	}
	text, err := os.ReadFile(args[0])
	if err != nil {
		return 0, fmt.Errorf("reading the document: %w", err)
	}
	check, faults, err := open(text)
	if err != nil {
		return 0, err
	}
	for _, fault := range faults {
		fmt.Fprintf(out, "%s: %s\n", args[0], fault)
	}
	if len(args) == 1 || len(faults) > 0 {
		return len(faults), nil
	}
	file, err := os.Open(args[1])
	if err != nil {
		return 0, fmt.Errorf("reading exchanges: %w", err)
	}
	defer file.Close()
	lines, read := bufio.NewScanner(file), 0
	lines.Buffer(nil, 64<<20)
	for ; lines.Scan(); read++ {
		var e exchange
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return 0, fmt.Errorf("line %d of %s: %w", read+1, args[1], err)
		}
		faults, err := check.exchange(e)
		if err != nil {
			return 0, fmt.Errorf("line %d of %s: %w", read+1, args[1], err)
		}
		for _, fault := range faults {
			found++
			fmt.Fprintf(out, "%s %s gets %d: %s\n\t%s\n\t%s\n", e.Method, e.URL, e.Status, fault, e.RequestBody, e.ResponseBody)
		}
	}
	if err := lines.Err(); err != nil {
		return 0, fmt.Errorf("reading exchanges: %w", err)
	}
	if read == 0 {
		return 0, fmt.Errorf("%s has no exchanges", args[1])
	}
	fmt.Fprintf(out, "%d exchanges checked\n", read)
	return found, nil
}

// checker checks exchanges against a document. The validator takes /things/{id} for the path of /things/1:stop, so that the checker
// writes /things/{id}/:stop for both, and /things/:stop for /things:stop.
type checker struct {
	validator validator.Validator
	model     *v3.Document
	verbs     []string // with their colons
}

var verb = regexp.MustCompile(`("/[^":]*)(:\w+)"`)

// open returns what is wrong with the document itself.
func open(text []byte) (*checker, []string, error) {
	c := &checker{}
	for _, match := range verb.FindAllSubmatch(text, -1) {
		c.verbs = append(c.verbs, string(match[2]))
	}
	document, err := libopenapi.NewDocument(verb.ReplaceAll(text, []byte(`$1/$2"`)))
	if err != nil {
		return nil, nil, fmt.Errorf("reading the document: %w", err)
	}
	model, err := document.BuildV3Model()
	if err != nil {
		return nil, nil, fmt.Errorf("reading the document: %w", err)
	}
	c.model = &model.Model
	var errs []error
	if c.validator, errs = validator.NewValidator(document); len(errs) > 0 {
		return nil, nil, fmt.Errorf("reading the document: %w", errors.Join(errs...))
	}
	_, faults := c.validator.ValidateDocument()
	return c, told(faults), nil
}

func (c *checker) exchange(e exchange) ([]string, error) {
	url, query, asks := strings.Cut(e.URL, "?")
	for _, name := range c.verbs {
		if before, ok := strings.CutSuffix(url, name); ok {
			url = before + "/" + name
			break
		}
	}
	if asks {
		url += "?" + query
	}
	request, err := http.NewRequest(e.Method, url, strings.NewReader(e.RequestBody))
	if err != nil {
		return nil, err
	}
	request.Header = e.RequestHeader
	response := &http.Response{
		StatusCode: e.Status, Header: e.ResponseHeader, Request: request, Body: io.NopCloser(bytes.NewReader([]byte(e.ResponseBody))),
	}
	var out []string
	switch e.Status {
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		if strings.Contains(e.ResponseBody, "see /openapi.json") || e.Status == http.StatusMethodNotAllowed {
			return nil, nil // not a path of the API
		}
	case http.StatusBadRequest:
	default:
		_, faults := c.validator.ValidateHttpRequest(request)
		out = append(out, told(faults)...)
		request.Body = io.NopCloser(strings.NewReader(e.RequestBody))
	}
	_, faults := c.validator.ValidateHttpResponse(request, response)
	out = append(out, told(faults)...)
	if e.ResponseHeader.Get("Content-Type") == "text/event-stream" {
		wrong, err := c.events(e.ResponseBody)
		return append(out, wrong...), err
	}
	return out, nil
}

// schemasOfEvents are those of events that are no SandboxEvent.
var schemasOfEvents = map[string]string{
	"ERROR": "Problem", "START": "CommandStart", "STDOUT": "CommandOutput", "STDERR": "CommandOutput", "EXIT": "CommandExit",
}

// events checks each event of a stream.
func (c *checker) events(stream string) (out []string, err error) {
	for block := range strings.SplitSeq(strings.TrimSuffix(stream, "\n\n"), "\n\n") {
		var name, data string
		for line := range strings.SplitSeq(block, "\n") {
			switch field, value, _ := strings.Cut(line, ": "); field {
			case "event":
				name = value
			case "data":
				data += value
			}
		}
		kind, known := schemasOfEvents[name]
		if !known {
			kind = "SandboxEvent"
		}
		schema := c.model.Components.Schemas.GetOrZero(kind)
		if schema == nil {
			return nil, fmt.Errorf("the document has no schema %s", kind)
		}
		_, faults := schema_validation.NewSchemaValidator().ValidateSchemaString(schema.Schema(), data)
		out = append(out, told(faults)...)
	}
	return out, nil
}

func told(faults []*validation.ValidationError) []string {
	var out []string
	for _, fault := range faults {
		text := fault.Message + ": " + fault.Reason
		for _, schema := range fault.SchemaValidationErrors {
			text += fmt.Sprintf("; %s: %s", schema.KeywordLocation, schema.Reason)
		}
		out = append(out, text)
	}
	return out
}
