// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/durable"
	"navix.sh/atoll/pkg/envelope"
	"navix.sh/atoll/pkg/hubstate"
)

var hubView = view[*sandboxv1.HubStatus]{
	name: func(*sandboxv1.HubStatus) string { return "hub" },
	columns: []column[*sandboxv1.HubStatus]{
		{header: "VERSION", value: (*sandboxv1.HubStatus).GetVersion},
		{header: "CLAIM-KEYS", value: func(h *sandboxv1.HubStatus) string {
			switch {
			case h.GetRecovering():
				return "recovering"
			case len(h.GetAwaitedClusters()) > 0:
				return "accepted loss"
			default:
				return "known"
			}
		}},
		{header: "MISSING", value: func(h *sandboxv1.HubStatus) string { return strings.Join(h.GetAwaitedClusters(), ",") }},
		{header: "REASON", value: (*sandboxv1.HubStatus).GetReason},
		{header: "SINCE", value: func(h *sandboxv1.HubStatus) string { return since(time.Now(), h.GetSince()) }},
		{header: "ENCRYPTED", value: func(h *sandboxv1.HubStatus) string { return encrypted(h.GetEncryption()) }},
		{header: "EPOCH", wide: true, value: func(h *sandboxv1.HubStatus) string { return strconv.Itoa(int(h.GetEpoch())) }},
	},
}

// encrypted describes the key of the hub's files and, during a rotation, how many of the entries use it.
func encrypted(e *sandboxv1.Encryption) string {
	switch {
	case e == nil:
		return "no"
	case e.GetStale() == 0:
		return e.GetKey()
	default:
		return fmt.Sprintf("%s (%d of %d)", e.GetKey(), e.GetSealed(), e.GetSealed()+e.GetStale())
	}
}

func hubCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "hub",
		Short:   "Show whether the hub knows every claim key, and its replicas; back it up and restore it",
		Example: "  atollctl hub\n  atollctl hub backup hub.tar.gz",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.call(cmd, func(ctx context.Context, c clients) error {
				status, err := c.hub.GetHub(ctx, &sandboxv1.GetHubRequest{})
				if err != nil {
					return err
				}
				return hubView.one(cmd.OutOrStdout(), a.output, status)
			})
		},
	}
	cmd.AddCommand(acceptLossCommand(a), backupCommand(a), restoreCommand(), migrateCommand(), replicasCommand(a))
	return cmd
}

var replicaView = view[*sandboxv1.Replica]{
	name: (*sandboxv1.Replica).GetName,
	columns: []column[*sandboxv1.Replica]{
		{header: "NAME", value: (*sandboxv1.Replica).GetName},
		{header: "REACHABLE", value: func(r *sandboxv1.Replica) string {
			switch {
			case r.GetSelf():
				return "self"
			case r.GetReachable():
				return "yes"
			default:
				return "no"
			}
		}},
		{header: "CLUSTERS", value: func(r *sandboxv1.Replica) string { return number(r.GetClusters()) }},
		{header: "VERSION", value: (*sandboxv1.Replica).GetVersion},
		{header: "SINCE", value: func(r *sandboxv1.Replica) string { return since(time.Now(), r.GetSince()) }},
		{header: "ADDRESS", wide: true, value: (*sandboxv1.Replica).GetAddress},
	},
}

func replicasCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "replicas",
		Short:   "List the hub's replicas, as the one that responds sees them, and how many clusters are attached to each",
		Example: "  atollctl hub replicas\n  atollctl clusters -o wide",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.call(cmd, func(ctx context.Context, c clients) error {
				list, err := c.hub.ListReplicas(ctx, &sandboxv1.ListReplicasRequest{})
				if err != nil {
					return err
				}
				return replicaView.list(cmd.OutOrStdout(), a.output, list.GetReplicas(), list)
			})
		},
	}
}

func acceptLossCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "accept-loss",
		Short: "Serve claim keys although some clusters have not told theirs",
		Long: `Serve claim keys although some clusters have not told theirs.

A hub that has lost its claims file, or was restored, serves no claim with a key until every registered cluster has told
the keys that it holds. If one of them cannot come back soon, accept the loss: a key that only this cluster knows may then
get a second sandbox. Claims with a key go to none of these clusters until they have told theirs. A cluster that
will never come back is better forgotten: atollctl cluster forget.`,
		Example: "  atollctl hub accept-loss",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.call(cmd, func(ctx context.Context, c clients) error {
				status, err := c.hub.AcceptLoss(ctx, &sandboxv1.AcceptLossRequest{})
				if err != nil {
					return err
				}
				if !status.GetAccepted() {
					fmt.Fprintln(cmd.ErrOrStderr(), "nothing was lost: the hub serves every claim key")
				}
				return hubView.one(cmd.OutOrStdout(), a.output, status)
			})
		},
	}
}

func backupCommand(a *app) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Write an archive of all that a running hub keeps; needs the scope admin",
		Long: `Write an archive of all that a running hub keeps: which clusters there are, and who holds which claim key. It needs an
API key with the scope admin. The archive holds the names and parameters of claims: keep it as you keep the hub's volume. A hub with
--encryption-key-file writes them encrypted, with the same keys; keep those apart from the archive.`,
		Example: `  atollctl hub backup hub-$(date +%F).tar.gz`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "-" {
				return usagef("FILE: %q is not valid, want a file: it is there once the archive is whole; copy it from there", args[0])
			}
			info, err := os.Stat(args[0])
			if err == nil && info.IsDir() {
				return usagef("FILE: %q is not valid, want a file: that is a directory", args[0])
			}
			if _, err := os.Lstat(args[0]); err == nil && !force {
				return usagef("FILE: %q is not valid, want a file that does not exist yet; --force replaces it", args[0])
			}
			return a.call(cmd, func(ctx context.Context, c clients) error {
				manifest, err := backupTo(ctx, c.hub, args[0])
				if err != nil {
					return err
				}
				return printManifest(cmd.OutOrStdout(), "backed up to "+args[0], manifest)
			})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "replace a file that exists, once the new archive is whole")
	return cmd
}

// backupTo writes a backup and returns when it is durable. The file does not appear at path before it is complete.
func backupTo(ctx context.Context, hub sandboxv1.HubClient, path string) (manifest hubstate.Manifest, err error) {
	var received error
	err = durable.WriteFile(path, 0o600, func(f *os.File) error {
		manifest, received = receive(ctx, hub, f)
		return received
	})
	if err != nil && received == nil {
		err = fmt.Errorf("backing up: %w", err)
	}
	return manifest, err
}

func receive(ctx context.Context, hub sandboxv1.HubClient, f *os.File) (hubstate.Manifest, error) {
	stream, err := hub.BackupHub(ctx, &sandboxv1.BackupHubRequest{})
	if err != nil {
		return hubstate.Manifest{}, err
	}
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return hubstate.Manifest{}, err
		}
		if _, err := f.Write(chunk.GetData()); err != nil {
			return hubstate.Manifest{}, fmt.Errorf("backing up: %w", err)
		}
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return hubstate.Manifest{}, fmt.Errorf("backing up: %w", err)
	}
	return hubstate.Inspect(f)
}

func migrateCommand() *cobra.Command {
	var flags hubstate.MigrateFlags
	cmd := &cobra.Command{
		Use:     "migrate --from bbolt:DIR --to etcd:URL,URL",
		Short:   hubstate.MigrateShort,
		Long:    hubstate.MigrateLong,
		Example: "  atollctl hub migrate --from bbolt:/var/lib/atoll-hub --to etcd:https://a:2379,https://b:2379 --etcd-ca-file ca.crt",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return flags.Run(cmd.Context(), cmd.OutOrStdout()) },
	}
	flags.Bind(cmd.Flags())
	_, _ = cmd.MarkFlagRequired("from"), cmd.MarkFlagRequired("to")
	return cmd
}

func restoreCommand() *cobra.Command {
	var dir, keyFile string
	var force bool
	cmd := &cobra.Command{
		Use:   "restore FILE --data-dir DIR",
		Short: "Put an archive into the data directory of a hub that does not run",
		Long: `Put an archive into the data directory of a hub that does not run. Where the directory is in a volume of Kubernetes,
` + "`atoll-hub restore`" + ` does the same from inside: see the hub chart's notes.

Clusters that were registered or forgotten after the backup stay so, where the registry that is there can be read. What was
claimed after the backup is missing. So the hub begins with no claim keys served, until every cluster has told the keys
that it holds: seconds, if all are there. See: atollctl hub.`,
		Example: "  atollctl hub restore hub.tar.gz --data-dir /var/lib/atoll",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			sealer, err := envelope.Open(keyFile)
			if err != nil {
				return err
			}
			f, err := os.Open(args[0])
			if err != nil {
				return fmt.Errorf("restoring: %w", err)
			}
			restored, err := hubstate.Restore(cmd.Context(), f, dir, force, sealer)
			if err = errors.Join(err, f.Close()); err != nil {
				if errors.Is(err, hubstate.ErrArchive) {
					return fmt.Errorf("FILE: %s: %w", args[0], err)
				}
				if errors.Is(err, hubstate.ErrExists) {
					err = fmt.Errorf("%w; --force keeps them as *.before-restore and restores", err)
				}
				return err
			}
			err = printManifest(cmd.OutOrStdout(), "restored to "+dir, restored.Manifest)
			_, err2 := fmt.Fprintln(cmd.OutOrStdout(), restored.Clusters())
			return errors.Join(err, err2)
		},
	}
	cmd.Flags().StringVar(&dir, "data-dir", "", "the hub's data directory (required)")
	cmd.Flags().StringVar(&keyFile, "encryption-key-file", "",
		"the hub's file of encryption keys, if the archive is encrypted or the hub encrypts what it keeps")
	cmd.Flags().BoolVar(&force, "force", false, "take the place of files that are there; they are kept beside it")
	_ = cmd.MarkFlagRequired("data-dir")
	return cmd
}

func printManifest(w io.Writer, what string, m hubstate.Manifest) error {
	_, err := fmt.Fprintf(w, "%s: hub %s at %s", what, m.Version, m.CreatedAt.Format(time.RFC3339))
	for _, f := range m.Files {
		_, err2 := fmt.Fprintf(w, ", %s schema %d of %d bytes", f.Kind, f.Schema, f.Bytes)
		err = errors.Join(err, err2)
	}
	_, err2 := fmt.Fprintln(w)
	return errors.Join(err, err2)
}
