// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"strings"
	"text/template"
	"time"
)

//go:embed stages
var stageFiles embed.FS

// kwokConfig is kwok's configuration: our Stages with the delays filled in. This step's placeholders are in double square
// brackets; the Stages' own templates, which kwok fills in for each object, are in double braces.
func kwokConfig(delays Delays, kubeletPort int) ([]byte, error) {
	podStatus, err := fill("stages/pod-status.gotmpl", nil, nil)
	if err != nil {
		return nil, err
	}
	nodeStatus, err := fill("stages/node-status.gotmpl", nil, kubeletPort)
	if err != nil {
		return nil, err
	}
	funcs := template.FuncMap{
		"ms":           time.Duration.Milliseconds,
		"nodeStatus":   func() (string, error) { return quote(nodeStatus) },
		"podStatus":    func(event string) (string, error) { return quote(fmt.Sprintf("{{ $event := %q }}", event) + podStatus) },
		"anyContainer": anyContainer,
	}
	node, err := fill("stages/node.yaml", funcs, delays)
	if err != nil {
		return nil, err
	}
	pod, err := fill("stages/pod.yaml", funcs, delays)
	if err != nil {
		return nil, err
	}
	return []byte(node + "---\n" + pod), nil
}

// anyContainer is a jq expression: whether condition holds for the status of any container, with $image from its spec. For a
// container that is not in the spec, which should not happen, image is null.
func anyContainer(condition string) string {
	return `(.spec.containers | map({key: .name, value: .image}) | from_entries) as $images | ` +
		`any(.status.containerStatuses[]?; $images[.name] as $image | ` + condition + `)`
}

func fill(name string, funcs template.FuncMap, data any) (string, error) {
	tmpl, err := template.New("").Delims("[[", "]]").
		Funcs(template.FuncMap{
			"restartAnnotation": func() string { return RestartAnnotation },
			"resizeAnnotation":  func() string { return ResizeAnnotation },
		}).
		Funcs(funcs).ParseFS(stageFiles, name)
	if err != nil {
		return "", fmt.Errorf("reading kwok's stages: %w", err)
	}
	var out bytes.Buffer
	if err := tmpl.ExecuteTemplate(&out, name[strings.LastIndex(name, "/")+1:], data); err != nil {
		return "", fmt.Errorf("filling in kwok's stages: %w", err)
	}
	return out.String(), nil
}

// quote returns a text as a JSON string, which is always a valid YAML scalar.
func quote(text string) (string, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(text); err != nil {
		return "", err
	}
	return strings.TrimSpace(out.String()), nil
}
