// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"os"
	"strings"
	"testing"

	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/pluginpb"
	"sigs.k8s.io/yaml"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
)

// A method without a permission, a permission without a method, and a line that says too little fail the generation.
func TestEveryMethodNeedsAnEntry(t *testing.T) {
	text, err := os.ReadFile("../../../api/sandbox/v1/sandbox_permissions.yaml")
	must.Succeed(t, err)
	var there table
	must.Succeed(t, yaml.UnmarshalStrict(text, &there))
	for want, change := range map[string]func(map[string]entry){
		"": func(map[string]entry) {},
		"method Hub.BackupHub has no permission": func(m map[string]entry) {
			delete(m, "Hub.BackupHub")
		},
		"method Pki.RotateCa has no permission": func(m map[string]entry) {
			delete(m, "Pki.RotateCa")
		},
		"Hub.Nothing has a permission, and there is no such method": func(m map[string]entry) {
			m["Hub.Nothing"] = entry{Resource: "hub", Verb: "get"}
		},
		"method Hub.GetHub: {Resource:hub Verb: Reach: Changes:false} is not val": func(m map[string]entry) {
			m["Hub.GetHub"] = entry{Resource: "hub"}
		},
		"method Hub.GetHub: {Resource:hub Verb:get Reach:some Changes:false} is": func(m map[string]entry) {
			m["Hub.GetHub"] = entry{"hub", "get", "some", false}
		},
	} {
		methods := maps.Clone(there.Methods)
		change(methods)
		err := generate(plugin(t), "out.pb.go", methods)
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// plugin has the protobuf of the public API as it is.
func plugin(t *testing.T) *protogen.Plugin {
	t.Helper()
	param := "paths=source_relative"
	request := &pluginpb.CodeGeneratorRequest{Parameter: &param}
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
	public := sandboxv1.File_sandbox_v1_sandbox_proto.Package()
	protoregistry.GlobalFiles.RangeFilesByPackage(public, func(file protoreflect.FileDescriptor) bool {
		add(file)
		request.FileToGenerate = append(request.FileToGenerate, file.Path())
		return true
	})
	out, err := protogen.Options{}.New(request)
	must.Succeed(t, err)
	return out
}
