// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kubelet_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"navix.sh/atoll/api/envd"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/client"
	"navix.sh/atoll/pkg/problem"
)

// The images in which the daemon is tried beside the tests' own, which holds one static program and nothing else.
var (
	daemonImages   = flag.String("images", "", "further images in which the daemon is tried, separated by commas; the nodes have or pull them")
	daemonArchives = flag.String("archives", "", "archives of images that are loaded into the clusters first, separated by commas")
)

func listOf(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}

// hardened gives Pods a read-only root, a user that no image has, and no privilege. /scratch can be written to.
func hardened(pod *corev1.PodSpec) {
	stack.ScratchPod(corev1.EmptyDirVolumeSource{})(pod)
	pod.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(65532)), RunAsNonRoot: new(true)}
	pod.Containers[0].SecurityContext = &corev1.SecurityContext{
		ReadOnlyRootFilesystem: new(true), AllowPrivilegeEscalation: new(false),
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}

// asBuilt leaves Pods as the image has them, but for a folder to write to.
func asBuilt(pod *corev1.PodSpec) { stack.ScratchPod(corev1.EmptyDirVolumeSource{})(pod) }

// The daemon gives an agent files and commands in any image, with any rights, and the next tenant nothing of them (I13).
func TestTheDaemonInAnyImage(t *testing.T) {
	api := newClient(t)
	for i, image := range append([]string{idleImage}, listOf(*daemonImages)...) {
		for name, change := range map[string]func(*corev1.PodSpec){"hardened": hardened, "built": asBuilt} {
			t.Run(image+"/"+name, func(t *testing.T) {
				ctx := testContext(t)
				e := newEnvFrom(ctx, t, resets, 1, stack.Env{
					Name: fmt.Sprintf("daemon-%s-%d", name, i), Image: image, Runtime: "e2b", Port: envd.Port, Pod: []func(*corev1.PodSpec){change},
				}, "{requests: {cpu: 1m, memory: 16Mi}, limits: {memory: 256Mi}}")
				try := &tryout{t: t, ctx: ctx, api: api, env: e.name}
				try.claim("GREETING", "from the first")
				try.files()
				try.commands("from the first")
				try.processes()
				must.Succeed(t, try.sandbox.Release(ctx))
				try.claim("OTHER", "")
				try.nothingIsLeft()
				must.Succeed(t, try.sandbox.Release(ctx))
			})
		}
	}
}

// newClient is a Go agent's.
func newClient(t *testing.T) *client.Client {
	t.Helper()
	endpoint := atoll.HubEndpoint()
	transport, err := endpoint.HTTPClient()
	must.Succeed(t, err)
	t.Cleanup(transport.CloseIdleConnections)
	api, err := client.New(client.Options{Server: endpoint.URL(), HTTP: transport})
	must.Succeed(t, err)
	return api
}

// tryout is what an agent does with one sandbox after the other.
type tryout struct {
	t       *testing.T
	ctx     context.Context
	api     *client.Client
	env     string
	sandbox *client.Sandbox
	shell   bool // the image has one
}

func (o *tryout) claim(name, value string) {
	o.t.Helper()
	var err error
	o.sandbox, err = o.api.Create(o.ctx, &sandboxv1.CreateSandboxRequest{
		Namespace: namespace, Env: o.env, EnvVars: map[string]string{name: value},
	})
	must.Succeed(o.t, err)
}

func (o *tryout) files() {
	o.t.Helper()
	content := make([]byte, 8<<20)
	_, err := rand.Read(content)
	must.Succeed(o.t, err)
	const path = "/scratch/a/data"
	must.Succeed(o.t, o.sandbox.MakeFolder(o.ctx, "/scratch/a"))
	must.Succeed(o.t, o.sandbox.WriteFile(o.ctx, path, content))
	got, err := o.sandbox.ReadFile(o.ctx, path, 16<<20)
	must.Succeed(o.t, err)
	if !bytes.Equal(got, content) {
		o.t.Errorf("read %d bytes, which are not the %d that were written", len(got), len(content))
	}
	must.Succeed(o.t, o.sandbox.Move(o.ctx, path, "/scratch/a/moved"))
	entries, err := o.sandbox.List(o.ctx, "/scratch/a", 1)
	must.Succeed(o.t, err)
	if len(entries) != 1 || entries[0].Name != "moved" || entries[0].Size != int64(len(content)) {
		o.t.Errorf("the folder has %+v", entries)
	}
	var e *problem.Error
	if _, err := o.sandbox.Stat(o.ctx, path); !errors.As(err, &e) || e.Reason != problem.NotFound {
		o.t.Errorf("a file that was moved: %v", err)
	}
	if err := o.sandbox.WriteFile(o.ctx, "/proc/none", nil); err == nil {
		o.t.Error("no error for a file where none can be")
	}
}

// commands runs one in a shell, or in an image without one the tests' own program.
func (o *tryout) commands(greeting string) {
	o.t.Helper()
	got, err := o.sandbox.Run(o.ctx, "sh", "-c", "echo $GREETING; echo aside >&2; exit 3")
	if o.shell = err == nil; o.shell {
		if got.ExitCode != 3 || string(got.Stdout) != greeting+"\n" || string(got.Stderr) != "aside\n" {
			o.t.Errorf("the command ended with %+v", got)
		}
		return
	}
	var e *problem.Error
	if !errors.As(err, &e) || !strings.Contains(e.Error(), "sh") {
		o.t.Errorf("an image without a shell: %v", err)
	}
	got, err = o.sandbox.Run(o.ctx, "/tenant", "exit", "3")
	must.Succeed(o.t, err)
	if got.ExitCode != 3 {
		o.t.Errorf("the command ended with %+v", got)
	}
}

// processes ends one that runs.
func (o *tryout) processes() {
	o.t.Helper()
	command := []string{"sleep", "1000"}
	if !o.shell {
		command = []string{"/tenant", "linger"}
	}
	type end struct {
		result *client.Result
		err    error
	}
	ended := make(chan end, 1)
	go func() {
		result, err := o.sandbox.Run(o.ctx, command...)
		ended <- end{result, err}
	}()
	wait.For(o.t, patience, "the process to be listed and ended", func(ctx context.Context) error {
		list, err := o.sandbox.Processes(ctx)
		if err != nil || len(list) != 1 {
			return fmt.Errorf("%d processes, %w", len(list), err)
		}
		return o.sandbox.Signal(ctx, list[0].PID, "SIGKILL")
	})
	if got := <-ended; got.err != nil || got.result.ExitCode != -1 || got.result.Status == "" {
		o.t.Errorf("the process ended with %+v, %v", got.result, got.err)
	}
}

// nothingIsLeft by the tenant before.
func (o *tryout) nothingIsLeft() {
	o.t.Helper()
	if entries, err := o.sandbox.List(o.ctx, "/scratch", 3); err != nil || len(entries) > 0 {
		o.t.Errorf("the next tenant finds %+v, %v", entries, err)
	}
	if list, err := o.sandbox.Processes(o.ctx); err != nil || len(list) > 0 {
		o.t.Errorf("the next tenant finds processes: %+v, %v", list, err)
	}
	if !o.shell {
		return
	}
	got, err := o.sandbox.RunCommand(o.ctx, client.Command{Args: []string{"sh", "-c", "env"}, Timeout: 30 * time.Second})
	if err != nil || strings.Contains(string(got.Stdout), "from the first") {
		o.t.Errorf("the next tenant's environment: %s, %v", got.Stdout, err)
	}
}
