// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/pluginpb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
)

// run generates from the public API's protobuf as it is.
func run(t *testing.T, change func([]rule, *additions)) (string, error) {
	t.Helper()
	request := &pluginpb.CodeGeneratorRequest{}
	seen := map[string]bool{}
	var add func(protoreflect.FileDescriptor)
	add = func(file protoreflect.FileDescriptor) { // imports first
		if seen[file.Path()] {
			return
		}
		seen[file.Path()] = true
		for i := range file.Imports().Len() {
			add(file.Imports().Get(i))
		}
		request.ProtoFile = append(request.ProtoFile, protodesc.ToFileDescriptorProto(file))
	}
	for _, file := range []protoreflect.FileDescriptor{
		sandboxv1.File_sandbox_v1_access_proto, sandboxv1.File_sandbox_v1_joining_proto, sandboxv1.File_sandbox_v1_sandbox_proto,
	} {
		add(file)
		request.FileToGenerate = append(request.FileToGenerate, file.Path())
	}
	plugin, err := protogen.Options{}.New(request)
	must.Succeed(t, err)
	var r rules
	var a additions
	must.Succeed(t, read("../../../api/sandbox/v1/sandbox_http.yaml", &r))
	must.Succeed(t, read("../../../api/sandbox/v1/sandbox_openapi.yaml", &a))
	change(r.HTTP.Rules, &a)
	text, err := generate(plugin, r.HTTP.Rules, a)
	return string(text), err
}

func TestWhatIsWrongInTheFilesIsAnError(t *testing.T) {
	for want, change := range map[string]func([]rule, *additions){
		"Sandboxes.Nothing, which the protobuf does not have": func(r []rule, _ *additions) {
			r[0].Selector = "atoll.sandbox.v1.Sandboxes.Nothing"
		},
		"nothing, which GetSandboxRequest does not have": func(r []rule, _ *additions) { r[2].Get = "/v1/sandboxes/{nothing}" },
		"has get twice":              func(r []rule, _ *additions) { r[2].Get = "/v1/sandboxes" },
		"Envs.Nothing, which has no": func(_ []rule, a *additions) { a.Calls["Envs.Nothing"] = call{} },
		`"NOTHING" is not a reason`:  func(_ []rule, a *additions) { a.Everywhere = append(a.Everywhere, "NOTHING") },
		`body "manifest" is not supp`: func(r []rule, _ *additions) {
			r[slices.IndexFunc(r, func(one rule) bool { return strings.HasSuffix(one.Selector, ".PutEnv") })].Body = "manifest"
		},
		"both written by hand and a me": func(_ []rule, a *additions) {
			a.Head = json.RawMessage(strings.Replace(string(a.Head), `"Problem":`, `"Claim":`, 1))
		},
	} {
		if _, err := run(t, change); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Without comments, which descriptors of programs do not have, the document has the same operations and schemas.
func TestTheDocumentIsGenerated(t *testing.T) {
	text, err := run(t, func([]rule, *additions) {})
	must.Succeed(t, err)
	names := func(text []byte) (out struct {
		Paths      map[string]map[string]struct{ OperationID string }
		Components struct {
			Schemas map[string]struct{ Required []string }
		}
	}) {
		must.Succeed(t, json.Unmarshal(text, &out))
		return out
	}
	want, err := json.Marshal(names(sandboxv1.OpenAPI))
	must.Succeed(t, err)
	got, err := json.Marshal(names([]byte(text)))
	must.Succeed(t, err)
	if string(got) != string(want) {
		t.Errorf("openapi.json is not what `make generate-proto` writes:\n%s\nwant\n%s", want, got)
	}
}
