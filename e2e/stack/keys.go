// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// APIKeys makes API keys of a hub: by their names, the flags that say what each may do. It writes to dir a file for --api-keys-file, which
// it returns, and the token of each, NAME.token.
func APIKeys(ctx context.Context, binDir, dir string, flags map[string]string) (file string, tokens map[string]string, err error) {
	file, tokens = filepath.Join(dir, "keys.yaml"), map[string]string{}
	keys := "keys:\n"
	for name, may := range flags {
		path := filepath.Join(dir, name+".token")
		args := append([]string{"api-key", "new", "--name", name, "--token-file", path}, strings.Fields(may)...)
		out, err := exec.CommandContext(ctx, filepath.Join(binDir, "atoll-hub"), args...).Output()
		if err != nil {
			return "", nil, fmt.Errorf("making the API key %s: %w", name, err)
		}
		_, list, _ := strings.Cut(string(out), "keys:\n")
		keys += list
		token, err := os.ReadFile(path)
		if err != nil {
			return "", nil, fmt.Errorf("reading back the API key %s: %w", name, err)
		}
		tokens[name] = strings.TrimSpace(string(token))
	}
	if err := os.WriteFile(file, []byte(keys), 0o600); err != nil {
		return "", nil, fmt.Errorf("writing the API keys: %w", err)
	}
	return file, tokens, nil
}
