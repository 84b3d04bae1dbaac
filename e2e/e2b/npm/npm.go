// SPDX-License-Identifier: Apache-2.0

// Package npm runs programs of tools/e2b-client, which call E2B's stock npm packages. They need node 20 and npm.
package npm

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Packages are the versions of the SDK that a program may load, the newest first.
var Packages = []string{"e2b", "e2b-2", "e2b-1", "e2b-0"}

// CallResult is what client.js tells of one call of the SDK.
type CallResult struct {
	Call   string
	Result string // works, differs, refused, absent or failed
	Detail string
}

// Run runs a program with further variables, and returns what it printed. root is the repository's.
func Run(ctx context.Context, root string, variables []string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(root, "tools", "e2b-client", "run"), args...)
	cmd.Env = append(os.Environ(), variables...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("%v: %w: %s", args, err, errOut.Bytes())
	}
	return out.Bytes(), err
}

// Calls makes every call that a version of the SDK documents, in sandboxes of a template. The error names each call that failed.
func Calls(ctx context.Context, root string, variables []string, template, version string) (all []CallResult, err error) {
	out, err := Run(ctx, root, variables, "client.js", template, version)
	errs := []error{err}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		var one CallResult
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return all, fmt.Errorf("%s printed %q: %w", version, lines.Text(), err)
		}
		all = append(all, one)
		if one.Result == "failed" {
			errs = append(errs, fmt.Errorf("%s: %s: %s", version, one.Call, one.Detail))
		}
	}
	if len(all) == 0 {
		errs = append(errs, fmt.Errorf("%s: no call was made", version))
	}
	return all, errors.Join(errs...)
}
