// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/types/known/structpb"
	sigsyaml "sigs.k8s.io/yaml"

	"navix.sh/atoll/pkg/clip"
	"navix.sh/atoll/pkg/manifest"
	"navix.sh/atoll/pkg/plural"
	"navix.sh/atoll/pkg/problem"
)

const (
	maxManifestFile = 32 << 20 // bytes, of one file or stdin
	maxManifests    = 10_000
)

// document is one manifest of a file.
type document struct {
	file   string
	line   int        // of its first line with content
	node   *yaml.Node // for the lines of fields
	object manifest.Object
}

// at returns FILE:LINE of a field, or of the document if field is "".
func (d *document) at(field string) string { return d.file + ":" + strconv.Itoa(d.lineOf(field)) }

var step = regexp.MustCompile(`[^.\[\]]+|\[[^\]]*\]`)

// lineOf returns the line of a field's path, such as spec.clusters[0].members, or of its nearest parent that exists.
func (d *document) lineOf(field string) int {
	line, at := d.line, d.node
	for _, s := range step.FindAllString(field, -1) {
		next, where := child(at, strings.Trim(s, "[]"))
		if next == nil {
			break
		}
		line, at = where, next
	}
	return line
}

func child(of *yaml.Node, name string) (*yaml.Node, int) {
	if of == nil {
		return nil, 0
	}
	switch of.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(of.Content); i += 2 {
			if of.Content[i].Value == name {
				return of.Content[i+1], of.Content[i].Line
			}
		}
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(of.Content) {
			return of.Content[i], of.Content[i].Line
		}
	case yaml.DocumentNode, yaml.ScalarNode, yaml.AliasNode:
	}
	return nil, 0
}

// readManifests reads files, folders and stdin (-), templates first. Its error contains every fault, with its position.
func readManifests(stdin io.Reader, paths []string) ([]*document, error) {
	if len(paths) == 0 {
		return nil, usagef("--filename is needed: a file, a folder, or - for stdin")
	}
	var all []*document
	var faults []error
	for _, path := range paths {
		files := []string{path}
		if info, err := os.Stat(path); path != "-" && err == nil && info.IsDir() {
			if files, err = filesOf(path); err != nil {
				return nil, usagef("reading --filename: %w", err)
			}
		}
		for _, file := range files {
			docs, err := manifestsIn(stdin, file)
			all, faults = append(all, docs...), append(faults, err)
		}
	}
	seen := map[manifest.Ref]*document{}
	for _, d := range all {
		if first := seen[d.object.Ref()]; first != nil {
			faults = append(faults, usagef("%s: %s is in %s already", d.at(""), d.object.Ref(), first.at("")))
		}
		seen[d.object.Ref()] = d
	}
	if len(all) > maxManifests {
		faults = append(faults, usagef("%d manifests are not valid, want at most %d", len(all), maxManifests))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, usagef("%s: there is no manifest", strings.Join(paths, ", "))
	}
	slices.SortStableFunc(all, func(a, b *document) int { return cmp.Compare(b.object.Kind(), a.object.Kind()) })
	return all, nil
}

// filesOf lists the manifests in a folder and those below it.
func filesOf(folder string) (out []string, err error) {
	err = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)) &&
			!strings.HasPrefix(entry.Name(), "kustomization.") {
			out = append(out, path)
		}
		return err
	})
	return out, err
}

func manifestsIn(stdin io.Reader, file string) ([]*document, error) {
	name, from := file, stdin
	if file == "-" {
		name = "stdin"
	} else {
		f, err := os.Open(file)
		if err != nil {
			return nil, usagef("reading --filename: %w", err)
		}
		defer f.Close()
		from = f
	}
	text, err := io.ReadAll(io.LimitReader(from, maxManifestFile+1))
	if err != nil {
		return nil, usagef("reading %s: %w", name, err)
	}
	if len(text) > maxManifestFile {
		return nil, usagef("%s: more than %d bytes are not valid", name, maxManifestFile)
	}
	return parseManifests(name, text)
}

// parseManifests parses the documents of a file. It skips empty ones.
func parseManifests(name string, text []byte) (out []*document, err error) {
	var faults []error
	line := 1
	for _, part := range split(text) {
		begin := line
		line += bytes.Count(part, []byte("\n"))
		root := &yaml.Node{}
		if err := yaml.Unmarshal(part, root); err != nil {
			faults = append(faults, usagef("%s:%d: %w", name, begin, err))
			continue
		}
		if len(root.Content) == 0 || root.Content[0].Tag == "!!null" {
			continue
		}
		shift(root, begin-1)
		d := &document{file: name, line: root.Content[0].Line, node: root.Content[0]}
		data, err := sigsyaml.YAMLToJSONStrict(part)
		if err == nil {
			d.object, err = manifest.Parse(data)
		}
		if err != nil {
			faults = append(faults, usagef("%s: %w", d.at(""), err))
			continue
		}
		docs, err := d.unlist()
		out, faults = append(out, docs...), append(faults, err)
	}
	return out, errors.Join(faults...)
}

var separator = regexp.MustCompile(`(?m)^---([ \t].*)?\r?$`)

// split splits a file at its separators. A part starts with its separator, so that lines can be counted.
func split(text []byte) (out [][]byte) {
	begin := 0
	for _, at := range separator.FindAllIndex(text, -1) {
		if at[0] > begin {
			out = append(out, text[begin:at[0]])
			begin = at[0]
		}
	}
	return append(out, text[begin:])
}

func shift(n *yaml.Node, by int) {
	n.Line += by
	for _, c := range n.Content {
		shift(c, by)
	}
}

// unlist returns the manifests in a list, and checks that each is a manifest.
func (d *document) unlist() ([]*document, error) {
	switch kind := d.object.Kind(); kind {
	case manifest.EnvKind, manifest.TemplateKind:
	case "List", manifest.EnvKind + "List", manifest.TemplateKind + "List":
		var out []*document
		var faults []error
		items, _ := child(d.node, "items")
		list, _ := d.object["items"].([]any)
		for i, v := range list {
			node, line := child(items, strconv.Itoa(i))
			o, ok := v.(map[string]any)
			if !ok {
				faults = append(faults, usagef("%s:%d: items[%d] is not an object", d.file, line, i))
				continue
			}
			docs, err := (&document{file: d.file, line: line, node: node, object: o}).unlist()
			out, faults = append(out, docs...), append(faults, err)
		}
		return out, errors.Join(faults...)
	default:
		return nil, usagef("%s: kind: %q is not valid, want %s or %s", d.at("kind"), kind, manifest.EnvKind, manifest.TemplateKind)
	}
	if d.object.Name() == "" {
		return nil, usagef("%s: metadata.name: a name is needed", d.at("metadata"))
	}
	if d.object.Kind() == manifest.EnvKind && d.object.Namespace() == "" {
		d.object["metadata"].(map[string]any)["namespace"] = "default" // metadata has a name, so it is an object
	}
	return []*document{d}, nil
}

// toStruct returns the manifest in the form that requests have.
func (d *document) toStruct() (*structpb.Struct, error) {
	data, err := d.object.Encode()
	if err != nil {
		return nil, err
	}
	out := &structpb.Struct{}
	if err := out.UnmarshalJSON(data); err != nil {
		return nil, fmt.Errorf("%s: %w", d.at(""), err)
	}
	return out, nil
}

var unknownField = regexp.MustCompile(`unknown field "([^"]*)"`)

// fault adds the position of each field that a server's error names.
func (d *document) fault(err error) error {
	p := problem.FromError(err)
	field := ""
	if m := unknownField.FindStringSubmatch(p.Message); m != nil {
		field = m[1]
	} else if len(p.Fields) > 0 {
		field = p.Fields[0].Field
	}
	if len(p.Fields) < 2 {
		return problem.New(p.Reason, "%s: %s", d.at(field), p.Message)
	}
	// Print a line per field; the message has all fields in one line.
	told := problem.New(p.Reason, "%s: %s: %s not valid", d.at(""), d.object.Ref(), plural.Form(len(p.Fields), "field is", "fields are"))
	for i, f := range p.Fields {
		if i == maxFaults {
			told.Message += fmt.Sprintf("\n  and %d more", len(p.Fields)-maxFaults)
			break
		}
		told.Message += "\n  " + d.at(f.Field) + ": " + strings.TrimSuffix(f.Field+": "+clip.Line(f.Valid), ": ")
	}
	return told
}

// maxFaults is how many fields an error shows.
const maxFaults = 20
