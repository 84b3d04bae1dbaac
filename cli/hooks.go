// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"

	"google.golang.org/protobuf/types/known/structpb"
	"sigs.k8s.io/yaml"
)

// readHooks reads post-start hooks from a file; none without a file. The hub validates them.
func readHooks(file string) ([]*structpb.Struct, error) {
	if file == "" {
		return nil, nil
	}
	read := func() ([]byte, error) { return os.ReadFile(file) }
	if file == "-" {
		read = func() ([]byte, error) { return io.ReadAll(os.Stdin) }
	}
	data, err := read()
	if err != nil {
		return nil, usagef("--hooks: %w", err)
	}
	var list []map[string]any
	if err := yaml.Unmarshal(data, &list); err != nil {
		return nil, usagef("--hooks %s: want a list of hooks, such as [{exec: {command: [true]}}]: %w", file, err)
	}
	hooks := make([]*structpb.Struct, 0, len(list))
	for _, m := range list {
		hook, err := structpb.NewStruct(m)
		if err != nil {
			return nil, fmt.Errorf("--hooks %s: %w", file, err)
		}
		hooks = append(hooks, hook)
	}
	return hooks, nil
}
