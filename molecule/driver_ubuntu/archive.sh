# shellcheck shell=bash
# Stands in for Ubuntu's archive and for NVIDIA's repository on the disk (cuda-repo-...-local): the real names and
# dependencies, empty but for libraries that are only names and modules that say their version and kernel.
set -euo pipefail
tree=/tmp/package
archive=580.159.03-0ubuntu0.24.04.1

package() { # repository name version depends; what lies in $tree goes in
    mkdir -p "$tree/DEBIAN" "/srv/$1/pool"
    {
        printf 'Package: %s\nVersion: %s\nArchitecture: amd64\nMaintainer: test <t@example.invalid>\n' "$2" "$3"
        [[ -z ${4:-} ]] || printf 'Depends: %s\n' "$4"
        printf 'Description: stand-in\n'
    } >"$tree/DEBIAN/control"
    dpkg-deb --root-owner-group -Znone --build "$tree" "/srv/$1/pool" >/dev/null
    rm -rf "$tree"
}

unit() { # name
    mkdir -p $tree/usr/lib/systemd/system
    printf '[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n' >"$tree/usr/lib/systemd/system/$1.service"
}

module() { # kernel version
    local folder=$tree/lib/modules/$1/kernel/nvidia-580srv-open
    mkdir -p "$folder" $tree/DEBIAN
    printf 'const char s[] __attribute__((used, section(".modinfo"))) = "version=%s\\0vermagic=%s SMP mod_unload ";\n' \
        "$2" "$1" >/tmp/nvidia.c
    gcc -c -o "$folder/nvidia.ko" /tmp/nvidia.c
    # shellcheck disable=SC2016
    printf '#!/bin/sh\ndepmod %s\n' "$1" >$tree/DEBIAN/postinst
    chmod 755 $tree/DEBIAN/postinst
    package ubuntu "linux-modules-nvidia-580-server-open-$1" 6.8.0-50.51
}

finish() { # repository origin
    cd "/srv/$1"
    apt-ftparchive packages pool >Packages
    apt-ftparchive -o "APT::FTPArchive::Release::Origin=$2" release . >/tmp/Release
    mv /tmp/Release Release
}

for version in $archive 570.195.03-0ubuntu0.24.04.1; do
    branch=${version%%.*}
    mkdir -p $tree/usr/lib/x86_64-linux-gnu
    for name in libcuda libnvidia-ml; do
        echo $name >"$tree/usr/lib/x86_64-linux-gnu/$name.so.${version%-*}"
        ln -s "$name.so.${version%-*}" "$tree/usr/lib/x86_64-linux-gnu/$name.so.1"
    done
    package ubuntu "libnvidia-compute-$branch-server" "$version"
    package ubuntu "nvidia-kernel-common-$branch-server" "$version"
    unit nvidia-persistenced
    package ubuntu "nvidia-compute-utils-$branch-server" "$version"
    package ubuntu "nvidia-driver-$branch-server-open" "$version" "libnvidia-compute-$branch-server (= $version), \
nvidia-kernel-common-$branch-server (= $version), nvidia-compute-utils-$branch-server (= $version)"
done
module 6.8.0-50-generic 580.159.03
package ubuntu linux-modules-nvidia-580-server-open-generic 6.8.0-50.51 \
    "linux-modules-nvidia-580-server-open-6.8.0-50-generic, nvidia-kernel-common-580-server (>= 580.159.03)"
unit nvidia-fabricmanager
package ubuntu nvidia-fabricmanager-580 $archive "nvidia-kernel-common-580-server"
package ubuntu libnvsdm-580 $archive
package ubuntu nvlsm 2025.06.5-1
package ubuntu infiniband-diags 99.0-1
finish ubuntu Ubuntu
# The same names, one of them in the same version, and newer ones.
for version in 580.159.03-1 580.178.04-1; do
    package nvidia nvidia-fabricmanager-580 $version
    package nvidia libnvsdm-580 $version
done
finish nvidia NVIDIA

echo 'deb [trusted=yes] file:/srv/ubuntu ./' >/etc/apt/sources.list.d/ubuntu.list
echo 'deb [trusted=yes] file:/srv/nvidia ./' >/etc/apt/sources.list.d/cuda-ubuntu2404-12-8-local.list
# The kernel that the image starts; the one that runs here is the build machine's.
mkdir -p /lib/modules/6.8.0-50-generic
touch /boot/vmlinuz-6.8.0-50-generic
rm /etc/os-release
printf '%s\n' ID=ubuntu ID_LIKE=debian 'VERSION_ID="24.04"' VERSION_CODENAME=noble \
    'PRETTY_NAME="Ubuntu 24.04 LTS"' >/etc/os-release
python3 /root/wheel.py /srv/wheels 2.13.0+cu130 13.0
