package inventory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/api"
)

func TestLook(t *testing.T) {
	two := []Usage{{ID: "GPU-1", Name: "L4", Total: 1000 * api.MiB, Used: 10 * api.MiB}, {ID: "GPU-2", Name: "L4", Total: 1000 * api.MiB}}
	for name, c := range map[string]struct {
		body string
		want []Usage
		err  string
	}{
		"two":                      {"echo GPU-1, L4, 1000, 10; echo GPU-2, L4, 1000, 0", two, ""},
		"one has fallen off":       {"echo GPU-1, L4, 1000, 10; echo 'GPU-2, L4, [GPU is lost], [GPU is lost]'; exit 15", two[:1], ""},
		"one can't be asked":       {"echo 'Unable to determine the device handle for GPU0000:01:00.0: GPU is lost'; echo GPU-1, L4, 1000, 10; exit 15", two[:1], ""},
		"all are gone":             {"echo No devices were found; exit 6", nil, ""},
		"the driver does not work": {"echo NVIDIA-SMI has failed because it could not communicate with the driver; exit 9", nil, "could not communicate"},
	} {
		got, err := Config{NvidiaSMI: script(t, c.body)}.Poll(context.Background())
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: error %v, want %q", name, err, c.err)
		}
		if diff := gocmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if _, err := (Config{NvidiaSMI: "no-such-nvidia-smi"}).Poll(context.Background()); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("without nvidia-smi: %v, want errors.ErrUnsupported", err)
	}
}

// TestSlices: a GPU in MIG mode is its slices, each with its own memory; of those that share memory one counts.
func TestSlices(t *testing.T) {
	smi := script(t, `case "$*" in
-L) cat <<'EOF'
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-aaaa)
  MIG 3g.20gb     Device  0: (UUID: MIG-1111)
  MIG 1c.2g.10gb  Device  1: (UUID: MIG-2222)
  MIG 1c.2g.10gb  Device  2: (UUID: MIG-3333)
GPU 1: NVIDIA L4 (UUID: GPU-bbbb)
EOF
;;
"-q -x") cat <<'EOF'
<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
	<gpu id="00000000:10:00.0">
		<product_name>NVIDIA A100-SXM4-40GB</product_name>
		<mig_mode><current_mig>Enabled</current_mig></mig_mode>
		<mig_devices>
			<mig_device><index>0</index><gpu_instance_id>1</gpu_instance_id><fb_memory_usage><total>19968 MiB</total><used>1200 MiB</used></fb_memory_usage></mig_device>
			<mig_device><index>1</index><gpu_instance_id>5</gpu_instance_id><fb_memory_usage><total>9856 MiB</total><used>12 MiB</used></fb_memory_usage></mig_device>
			<mig_device><index>2</index><gpu_instance_id>5</gpu_instance_id><fb_memory_usage><total>9856 MiB</total><used>12 MiB</used></fb_memory_usage></mig_device>
		</mig_devices>
		<uuid>GPU-aaaa</uuid>
		<fb_memory_usage><total>40960 MiB</total><used>N/A</used></fb_memory_usage>
	</gpu>
	<gpu id="00000000:15:00.0"><product_name>NVIDIA L4</product_name><mig_devices>None</mig_devices><uuid>GPU-bbbb</uuid></gpu>
</nvidia_smi_log>
EOF
;;
*) echo "GPU-aaaa, NVIDIA A100-SXM4-40GB, 40960, 1300, Enabled"; echo "GPU-bbbb, NVIDIA L4, 23034, 512, [N/A]" ;;
esac`)
	got, err := Config{NvidiaSMI: smi}.Poll(t.Context())
	want := []Usage{
		{ID: "GPU-bbbb", Name: "NVIDIA L4", Total: 23034 * api.MiB, Used: 512 * api.MiB},
		{ID: "MIG-1111", Name: "MIG 3g.20gb", Total: 19968 * api.MiB, Used: 1200 * api.MiB},
		{ID: "MIG-2222", Name: "MIG 1c.2g.10gb", Total: 9856 * api.MiB, Used: 12 * api.MiB},
	}
	if diff := gocmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	devices, err := Discover(t.Context(), Config{Memory: api.GiB, NvidiaSMI: smi})
	if err != nil || len(devices) != 4 || devices[2].Joins(2) || !devices[2].Joins(1) || !devices[1].Joins(2) {
		t.Errorf("%v: %+v", err, devices)
	}
	for what, body := range map[string]string{
		"a lost GPU and the list": `case "$*" in -L) exit 15;; "-q -x") echo '<a/>';; *) echo "GPU-a, A100, 100, 0, Enabled"; exit 15;; esac`,
		"one slice":               `case "$*" in -L) echo 'MIG 1g.5gb Device 0: (UUID: MIG-1)';; "-q -x") echo '<a/>';; *) echo "GPU-a, A100, 100, 0, Enabled";; esac`,
		"the list":                `case "$*" in -L) echo no; exit 3;; "-q -x") echo '<a/>';; *) echo "GPU-a, A100, 100, 0, Enabled";; esac`,
		"the details":             `case "$*" in -L) ;; "-q -x") echo half of;; *) echo "GPU-a, A100, 100, 0, Enabled";; esac`,
	} {
		got, err := Config{NvidiaSMI: script(t, body)}.Poll(t.Context())
		if len(got) > 0 || err == nil || !strings.Contains(err.Error(), "list the slices of GPUs") {
			t.Errorf("without %s: %v, %v", what, got, err)
		}
	}
}

func TestUnaccounted(t *testing.T) {
	d := Usage{Total: 80 * api.GiB, Used: 4 * api.GiB}.NewDevice() // 4 GiB were used before we came
	for _, c := range []struct{ used, held, want api.Bytes }{
		{4, 0, 0}, {3, 0, 0}, {10, 0, 6}, {44, 40, 0}, {50, 40, 6}, {30, 40, 0}, {1000, 0, 80},
	} {
		want := min(c.want*api.GiB, d.Capacity)
		if got := d.Unaccounted(c.used*api.GiB, c.held*api.GiB); got != want {
			t.Errorf("%d GiB used, %d held: %s are others', want %s", c.used, c.held, got, want)
		}
	}
}

// exposition is an answer of an exporter of version 4.
const exposition = `# HELP DCGM_FI_DEV_FB_FREE Framebuffer memory free (in MiB).
# TYPE DCGM_FI_DEV_FB_FREE gauge
DCGM_FI_DEV_FB_FREE{gpu="0",UUID="GPU-1",pci_bus_id="00000000:01:00.0",device="nvidia0",modelName="NVIDIA L4",Hostname="n1"} 900
DCGM_FI_DEV_FB_FREE{gpu="1",UUID="GPU-2",device="nvidia1",modelName="NVIDIA L4",Hostname="n1"} 1000
# TYPE DCGM_FI_DEV_FB_USED gauge
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-1",device="nvidia0",modelName="NVIDIA L4",Hostname="n1",pod="x"} 100
DCGM_FI_DEV_FB_USED{gpu="1",UUID="GPU-2",device="nvidia1",modelName="NVIDIA L4",Hostname="n1"} 0
DCGM_FI_DEV_FB_USED{gpu="2",UUID="GPU-3",GPU_I_ID="1",modelName="NVIDIA A100",Hostname="n1"} 70
DCGM_FI_DEV_FB_USED{gpu="3",UUID="",modelName="?"} 70
DCGM_FI_DEV_FB_USED{gpu="4",UUID="GPU-5",modelName="?"} NaN
`

func TestDCGM(t *testing.T) {
	answer := func(status int, body string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		}))
		t.Cleanup(s.Close)
		return s.URL + "/metrics"
	}
	good := answer(200, exposition)
	other := answer(200, "DCGM_FI_DEV_FB_USED{UUID=\"GPU-9\"} 5\nDCGM_FI_DEV_FB_TOTAL{UUID=\"GPU-9\"} 80\nDCGM_FI_DEV_FB_FREE{UUID=\"GPU-9\"} 70\n")
	for what, bad := range map[string]string{"answers 500": answer(500, ""), "has no DCGM_FI_DEV_FB_USED": answer(200, "up 1\n"), "read its metrics": answer(200, "<html>"), "not Prometheus text": answer(200, "#TYPE a \n{}")} {
		got, err := DCGM{URLs: []string{bad, good, other}}.Poll(context.Background())
		if err == nil || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), bad) {
			t.Errorf("error %v, want one that says of %s: %s", err, bad, what)
		}
		slices.SortFunc(got, func(a, b Usage) int { return cmp.Compare(a.ID, b.ID) })
		want := []Usage{
			{ID: "GPU-1", Name: "NVIDIA L4", Total: 1000 * api.MiB, Used: 100 * api.MiB},
			{ID: "GPU-2", Name: "NVIDIA L4", Total: 1000 * api.MiB},
			{ID: "GPU-9", Total: 80 * api.MiB, Used: 5 * api.MiB},
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	for _, bad := range []string{"", "dcgm:9400", "ftp://a/b", "http://"} {
		if err := (DCGM{URLs: []string{bad}}).Validate(); err == nil || !strings.Contains(err.Error(), "such as http://") {
			t.Errorf("URL %q: %v, want an error that shows how", bad, err)
		}
	}
}
