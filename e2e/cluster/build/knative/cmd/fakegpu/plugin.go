package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	kubeletSocket = "kubelet.sock"
	ownSocket     = "fakegpu.sock"
)

func (c config) offers() []string {
	var ids []string
	for _, uuid := range c.gpus {
		if c.replicas == 1 {
			ids = append(ids, uuid)
			continue
		}
		for k := range c.replicas {
			ids = append(ids, fmt.Sprintf("%s::%d", uuid, k))
		}
	}
	return ids
}

func (c config) health(id string) string {
	device, _, _ := strings.Cut(id, "::")
	if slices.Contains(c.lost, device) {
		return deviceplugin.Unhealthy
	}
	return deviceplugin.Healthy
}

func visible(ids []string) string {
	var all []string
	for _, id := range ids {
		device, _, _ := strings.Cut(id, "::")
		if !slices.Contains(all, device) {
			all = append(all, device)
		}
	}
	return strings.Join(all, ",")
}

type plugin struct {
	deviceplugin.UnimplementedDevicePluginServer
	config
	ctx context.Context // ends the streams
}

func (plugin) GetDevicePluginOptions(context.Context, *deviceplugin.Empty) (*deviceplugin.DevicePluginOptions, error) {
	return &deviceplugin.DevicePluginOptions{}, nil
}

// ListAndWatch sends the devices once: other flags are another process.
func (p plugin) ListAndWatch(_ *deviceplugin.Empty, to deviceplugin.DevicePlugin_ListAndWatchServer) error {
	var devices []*deviceplugin.Device
	for _, id := range p.offers() {
		devices = append(devices, &deviceplugin.Device{ID: id, Health: p.health(id)})
	}
	if err := to.Send(&deviceplugin.ListAndWatchResponse{Devices: devices}); err != nil {
		return err
	}
	select {
	case <-to.Context().Done():
	case <-p.ctx.Done():
	}
	return nil
}

func (p plugin) Allocate(_ context.Context, r *deviceplugin.AllocateRequest) (*deviceplugin.AllocateResponse, error) {
	known := p.offers()
	answer := &deviceplugin.AllocateResponse{}
	for _, c := range r.ContainerRequests {
		for _, id := range c.DevicesIds {
			if !slices.Contains(known, id) {
				return nil, fmt.Errorf("no device is called %q", id)
			}
		}
		answer.ContainerResponses = append(answer.ContainerResponses, &deviceplugin.ContainerAllocateResponse{
			Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": visible(c.DevicesIds)},
		})
	}
	return answer, nil
}

// offer registers the plugin. It returns nil when another kubelet has emptied the folder, or at the end.
func offer(ctx context.Context, c config, log *slog.Logger) error {
	socket := filepath.Join(c.dir, ownSocket)
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	server := grpc.NewServer()
	deviceplugin.RegisterDevicePluginServer(server, plugin{config: c, ctx: ctx})
	served := make(chan error, 1) // may end unread
	go func() { served <- server.Serve(l) }()
	defer func() {
		cancel()
		server.Stop()
	}()
	if err := register(ctx, c); err != nil {
		return fmt.Errorf("register: %w", err)
	}
	log.Info("registered", "resource", resource, "devices", len(c.gpus), "lost", len(c.lost), "replicas", c.replicas)
	for {
		pause(ctx, 500*time.Millisecond)
		if ctx.Err() != nil {
			return nil
		}
		if _, err := os.Stat(socket); err != nil {
			return nil
		}
		select {
		case err := <-served:
			return err
		default:
		}
	}
}

func register(ctx context.Context, c config) error {
	conn, err := grpc.NewClient("unix://"+filepath.Join(c.dir, kubeletSocket), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, err = deviceplugin.NewRegistrationClient(conn).Register(ctx, &deviceplugin.RegisterRequest{
		Version: deviceplugin.Version, Endpoint: ownSocket, ResourceName: resource,
	}, grpc.WaitForReady(true))
	return err
}
