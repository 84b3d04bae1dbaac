// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"navix.sh/atoll/api/envd"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	e2bwire "navix.sh/atoll/e2e/e2b/wire"
	"navix.sh/atoll/e2e/load"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
)

const (
	firstOutputs    = 8         // sandboxes of a leg
	firstOutputRate = 2.0       // a second; because each takes a tenth of a second, and processes are started
	fileSize        = 100 << 20 // bytes of the file that is moved
)

// agentsWorld is what the arms of the part agents share.
type agentsWorld struct {
	bench *bench
	plane *plane.Plane
	atoll *stack.Stack
	hub   *stack.Client
	e2b   *e2bwire.Client

	mu   sync.Mutex
	held []string // ids of sandboxes of the leg
}

// agents measures what an agent's author waits for, by the calls of E2B's SDK: a command's first output from the create on, a file, and
// requests to a port of a sandbox; each beside the same by the tools of a platform team.
func (b *bench) agents(ctx context.Context, add func(...result)) error {
	w := &agentsWorld{bench: b}
	var err error
	w.plane, w.atoll, err = b.newStackOf(ctx, plane.Options{Sandboxd: filepath.Join(b.binDir, "atoll-sandboxd")},
		stack.Options{E2B: true, WorkerArgs: []string{"--sandboxd-image=registry.example/atoll-sandboxd:v1"}})
	if err != nil {
		return err
	}
	if w.hub, err = w.atoll.HubClient(); err != nil {
		return err
	}
	w.e2b = &e2bwire.Client{Origin: w.atoll.E2BURL(""), Key: "e2b_0000000000000000000000000000000000000000"} // the hub asks for none
	env := stockEnv(firstOutputs + 4)
	env.Runtime, env.Port = "e2b", envd.Port
	env.Pod = []func(*corev1.PodSpec){func(pod *corev1.PodSpec) { pod.Containers[0].Command = []string{"sleep", "infinity"} }}
	if err := env.Apply(ctx, w.plane); err != nil {
		return err
	}
	return errors.Join(w.firstOutput(ctx, add), w.files(ctx, add), w.port(ctx, add))
}

// hold adds a sandbox to those that refill releases.
func (w *agentsWorld) hold(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held = append(w.held, id)
}

// refill releases the sandboxes of the last leg and waits until the pool is full.
func (w *agentsWorld) refill(ctx context.Context) error {
	for _, id := range w.held {
		if err := w.hub.Release(ctx, id); err != nil {
			return err
		}
	}
	w.held = nil
	return wait.Until(ctx, time.Minute, "the pool to be full", func(ctx context.Context) error {
		idle, err := w.hub.ReadyIdle(ctx, namespace, envName)
		if err != nil {
			return err
		}
		return wait.If(idle[clusterID] == firstOutputs+4, idle)
	})
}

func (w *agentsWorld) firstOutput(ctx context.Context, add func(...result)) error {
	one := func(name string, get func(ctx context.Context) (id string, err error)) arm {
		return loaded(name, w.refill, func(ctx context.Context, seed uint64) load.Result {
			return load.Open(ctx, firstOutputs, firstOutputRate, seed, func(ctx context.Context, _ int) error {
				id, err := get(ctx)
				if id != "" {
					w.hold(id)
				}
				return err
			})
		})
	}
	create := func(ctx context.Context) (string, error) {
		sandbox, err := w.hub.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{Namespace: namespace, Env: envName})
		return sandbox.GetId(), err
	}
	legs, err := w.bench.interleave(ctx, "first output", w.bench.size.pairs,
		one("E2B", func(ctx context.Context) (string, error) {
			sandbox, err := w.e2b.Create(ctx, namespace+"/"+envName, 600)
			if err != nil {
				return "", err
			}
			out, err := w.e2b.Run(ctx, sandbox, "echo hello")
			if err == nil {
				err = printed(out)
			}
			return sandbox.ID, err
		}),
		one("exec", func(ctx context.Context) (string, error) {
			id, err := create(ctx)
			if err != nil {
				return "", err
			}
			args := append(w.atoll.HubEndpoint().Flags(), "--plaintext", "exec", id, "--", "echo", "hello")
			out, err := exec.CommandContext(ctx, filepath.Join(w.bench.binDir, "atollctl"), args...).CombinedOutput()
			if err != nil {
				return id, fmt.Errorf("atollctl exec: %w: %s", err, out)
			}
			return id, printed(string(out))
		}),
		one("claim", create))
	if err != nil {
		return err
	}
	add(compare("E2B: create to a command's first output, p50, beside atollctl exec", "ms", quantile(0.5), legs[0], legs[1]),
		compare("E2B: create to a command's first output, p50, beside a bare claim", "ms", quantile(0.5), legs[0], legs[2]))
	return w.refill(ctx)
}

// printed refuses what is not the output of the command.
func printed(out string) error {
	if out != "hello\n" {
		return fmt.Errorf("the command printed %q", out)
	}
	return nil
}

// files moves a file to a sandbox and back, by E2B's calls and by kubectl cp.
func (w *agentsWorld) files(ctx context.Context, add func(...result)) error {
	dir, err := os.MkdirTemp("", "atoll-bench-")
	if err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	content := strings.Repeat("0123456789abcdef", fileSize/16)
	local, back, remote := filepath.Join(dir, "local"), filepath.Join(dir, "back"), filepath.Join(dir, "remote")
	if err := os.WriteFile(local, []byte(content), 0o600); err != nil {
		return fmt.Errorf("writing a file: %w", err)
	}
	sandbox, err := w.e2b.Create(ctx, namespace+"/"+envName, 3600)
	if err != nil {
		return err
	}
	w.hold(sandbox.ID)
	found, err := w.hub.GetSandbox(ctx, &sandboxv1.GetSandboxRequest{Id: sandbox.ID})
	if err != nil {
		return err
	}
	pod := namespace + "/" + found.GetPod() + ":" + remote
	once := func(name string, do func(ctx context.Context) error) arm {
		return loaded(name, nil, func(ctx context.Context, _ uint64) load.Result {
			return load.Closed(ctx, 1, 1, func(ctx context.Context, _ int) error { return do(ctx) })
		})
	}
	speed := func(l leg) float64 { return fileSize / 1e6 / l.Took.Seconds() }
	up, err := w.bench.interleave(ctx, "upload", w.bench.size.pairs,
		once("E2B", func(ctx context.Context) error { return w.e2b.Write(ctx, sandbox, "/tmp/file", content) }),
		once("kubectl cp", func(ctx context.Context) error {
			_, err := w.plane.Kubectl(ctx, "cp", local, pod)
			return err
		}))
	if err != nil {
		return err
	}
	down, err := w.bench.interleave(ctx, "download", w.bench.size.pairs,
		once("E2B", func(ctx context.Context) error {
			got, err := w.e2b.Read(ctx, sandbox, "/tmp/file")
			if err == nil && got != content {
				err = fmt.Errorf("read %d bytes, which are not those that were written", len(got))
			}
			return err
		}),
		once("kubectl cp", func(ctx context.Context) error {
			_, err := w.plane.Kubectl(ctx, "cp", pod, back)
			return err
		}))
	if err != nil {
		return err
	}
	add(compare("E2B: file of 100 MiB to a sandbox, beside kubectl cp", "MB/s", speed, up[0], up[1]),
		compare("E2B: file of 100 MiB from a sandbox, beside kubectl cp", "MB/s", speed, down[0], down[1]))
	return w.refill(ctx)
}
