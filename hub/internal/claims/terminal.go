// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/ledger"
)

// sketch returns the sandbox of a claim whose Pod is not known.
func sketch(req *sandboxv1.CreateSandboxRequest, phase sandboxv1.Phase) *sandboxv1.Sandbox {
	return &sandboxv1.Sandbox{
		Namespace: req.GetNamespace(), Env: req.GetEnv(), Image: req.GetImage(), Team: req.GetTeam(), User: req.GetUser(),
		Labels: req.GetLabels(), Metadata: req.GetMetadata(), ClaimKey: req.GetClaimKey(),
		StartupTimeout: req.GetStartupTimeout(), Phase: phase,
	}
}

// sketchOf returns the sandbox of a claim from the claim's record.
func sketchOf(req *sandboxv1.CreateSandboxRequest, r *ledger.Record, phase sandboxv1.Phase) *sandboxv1.Sandbox {
	s := sketch(req, phase)
	s.Id, s.ClusterId, s.Pool = r.SandboxID, r.Cluster, r.Pool
	return s
}

// canceled returns the terminal record of a claim that was cancelled before its sandbox was known.
func canceled(req *sandboxv1.CreateSandboxRequest, r *ledger.Record, now time.Time) *sandboxv1.Sandbox {
	s := sketchOf(req, r, sandboxv1.Phase_ENDED)
	s.StopReason, s.TerminatedAt = "Canceled", timestamppb.New(now)
	return s
}

// releasedEnd returns the terminal record of a released sandbox. It is used until the sandbox's own record arrives.
func releasedEnd(req *sandboxv1.CreateSandboxRequest, r *ledger.Record, now time.Time) *sandboxv1.Sandbox {
	s := canceled(req, r, now)
	s.StopReason = "Released"
	return s
}

// endForgotten returns the terminal record of a claim whose cluster was forgotten while it had the sandbox.
func endForgotten(req *sandboxv1.CreateSandboxRequest, r *ledger.Record, now time.Time) *sandboxv1.Sandbox {
	s := canceled(req, r, now)
	s.StopReason, s.FailureReason = "Failed", "ClusterForgotten"
	s.FailureMessage = "cluster " + r.Cluster + " was removed from the federation"
	return s
}

// lost returns the terminal record for a key whose sandbox was returned once and is now unknown to its cluster: it ended, and the reason
// was lost.
func lost(req *sandboxv1.CreateSandboxRequest, r *ledger.Record) *sandboxv1.Sandbox {
	s := sketchOf(req, r, sandboxv1.Phase_ENDED)
	s.StopReason, s.FailureReason = "Failed", "RecordLost"
	s.FailureMessage = "cluster " + r.Cluster + " no longer knows this sandbox, and its terminal record has not arrived"
	return s
}
