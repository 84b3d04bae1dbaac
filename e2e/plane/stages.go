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

// kwokConfig is the configuration of kwok: our Stages, with the delays filled in. The placeholders of this step are in
// double square brackets, as the Stages' own templates, which kwok fills in for each object, are in double braces.
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

// anyContainer is a jq expression: whether condition holds for the status of any container, with $image as its spec has
// it. A container that is not in the spec, which cannot be, has the image null.
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

// quote makes a text one JSON string, which is a YAML scalar whatever is in it.
func quote(text string) (string, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(text); err != nil {
		return "", err
	}
	return strings.TrimSpace(out.String()), nil
}
