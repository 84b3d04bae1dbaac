// SPDX-License-Identifier: Apache-2.0

// Command protoc-gen-openapi writes the OpenAPI 3.1 document of the REST API. protoc-gen-openapiv3 does not read HTTP rules from YAML, and
// does not support problem documents or paths that are not in protobuf.
//
// In: the protobuf with its comments; its HTTP rules (option rules); and what neither contains (option additions): errors of calls, tags,
// paths that pkg/reach serves. Out: openapi.json next to the additions. A name in either file that does not exist is an error.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/types/pluginpb"
	"sigs.k8s.io/yaml"
)

// rules is the part of the gateway's configuration about HTTP.
type rules struct {
	HTTP struct {
		Rules []rule `json:"rules"`
	} `json:"http"`
}

// additions is the content of the document that is in neither protobuf nor HTTP rules.
type additions struct {
	// Head has the document's info, servers, tags and security, and the components that are written by hand.
	Head json.RawMessage `json:"head"`
	// Everywhere lists the reasons of errors with which any call may fail.
	Everywhere []string `json:"everywhere"`
	// Calls adds details to some calls, by their selectors without the package.
	Calls map[string]call `json:"calls"`
	// Partial lists the messages of which a caller may request only some fields.
	Partial []string `json:"partial"`
	// Paths contains operations that are not in protobuf, in the form of the document, but with errors instead of their responses.
	Paths map[string]map[string]map[string]any `json:"paths"`
}

// call is the additional data about a call.
type call struct {
	Unbuilt    bool             `json:"unbuilt"`    // it is left out
	Errors     []string         `json:"errors"`     // more reasons
	Required   []string         `json:"required"`   // fields of the body
	Parameters []map[string]any `json:"parameters"` // more parameters
	Content    map[string]any   `json:"content"`    // content types of its response, besides JSON
	Messages   []string         `json:"messages"`   // messages that this content contains
}

func main() {
	var flags flag.FlagSet
	rulesFile := flags.String("rules", "", "file with the HTTP rules")
	additionsFile := flags.String("additions", "", "file with what is not in the protobuf")
	protogen.Options{ParamFunc: flags.Set}.Run(func(plugin *protogen.Plugin) error {
		plugin.SupportedFeatures = uint64(pluginpb.CodeGeneratorResponse_FEATURE_PROTO3_OPTIONAL)
		var r rules
		var a additions
		if err := read(*rulesFile, &r); err != nil {
			return err
		}
		if err := read(*additionsFile, &a); err != nil {
			return err
		}
		text, err := generate(plugin, r.HTTP.Rules, a)
		if err != nil {
			return err
		}
		out := plugin.NewGeneratedFile(filepath.Join(filepath.Dir(*additionsFile), "openapi.json"), "")
		_, err = out.Write(text)
		return err
	})
}

func read(path string, into any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading what the document needs: %w", err)
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// object is a JSON object with ordered members.
type object []member

type member struct {
	name  string
	value any
}

func (o *object) add(name string, value any) { *o = append(*o, member{name, value}) }

// MarshalJSON encodes the members in order.
func (o object) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	out.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			out.WriteByte(',')
		}
		name, err := plain(m.name)
		if err != nil {
			return nil, err
		}
		value, err := plain(m.value)
		if err != nil {
			return nil, err
		}
		out.Write(name)
		out.WriteByte(':')
		out.Write(value)
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// plain encodes a value without HTML escapes.
func plain(value any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, fmt.Errorf("encoding the document: %w", err)
	}
	return bytes.TrimSpace(out.Bytes()), nil
}
