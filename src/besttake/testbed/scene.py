"""The MJCF scenes: a parallel gripper on three slides over a table, and each task's objects on the table.

Lengths are in metres. Geoms of group 3 are the hand's own body, hidden from the wrist camera that sits inside it; group
4 is scenery for the front camera. Nothing in a model depends on the start: goals and the drawer's cabinet are mocap
bodies, so that a start is part of the simulation state alone and models can be shared. The shaft is a separate body
because multi-rays look for a body only where its colliding geoms are.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from besttake.testbed.engine import mujoco

HOME_HEIGHT = 0.2
FINGER_OPEN = 0.036
CABINET_FACE = 0.075

_HAND = f"""
<body name="hand" pos="0 0 {HOME_HEIGHT}" gravcomp="1">
  <joint name="x" type="slide" axis="1 0 0" range="-.35 .35" limited="true"/>
  <joint name="y" type="slide" axis="0 1 0" range="-.35 .35" limited="true"/>
  <joint name="z" type="slide" axis="0 0 1" range="-.19 .2" limited="true"/>
  <geom type="box" size=".022 .055 .012" pos="0 0 .075" mass="1" group="3" rgba=".26 .28 .33 1"/>
  <body name="shaft"><geom type="cylinder" size=".016 .35" pos="0 0 .437" mass="0" contype="0" conaffinity="0" group="4"
    rgba=".62 .64 .68 1"/></body>
  <camera name="wrist" pos="-.115 0 .125" xyaxes="0 -1 0 .72 0 .69" fovy="75"/>
  <body name="left" pos="0 .006 0" gravcomp="1">
    <joint name="left" type="slide" axis="0 1 0" range="0 .04" limited="true" damping="20"/>
    <geom type="box" size=".012 .006 .035" pos="0 0 .03" mass=".1" friction="2 .05 .001" rgba=".10 .66 .68 1"/>
  </body>
  <body name="right" pos="0 -.006 0" gravcomp="1">
    <joint name="right" type="slide" axis="0 -1 0" range="0 .04" limited="true" damping="20"/>
    <geom type="box" size=".012 .006 .035" pos="0 0 .03" mass=".1" friction="2 .05 .001" rgba=".90 .90 .88 1"/>
  </body>
</body>
"""

_CUBE = """
<body name="object" pos="0 0 .02"><freejoint name="object"/>
  <geom type="box" size=".02 .02 .02" mass=".06" rgba=".84 .20 .16 1"/></body>
"""

_PUCK = """
<body name="object" pos="0 0 .02"><freejoint name="object"/>
  <geom type="cylinder" size=".028 .02" mass=".15" friction=".6 .02 .001" rgba=".20 .36 .80 1"/></body>
"""

_BASE_CUBE = """
<body name="base" pos="0 0 .022"><freejoint name="base"/>
  <geom type="box" size=".022 .022 .022" mass=".2" rgba=".20 .36 .80 1"/></body>
"""

_GOAL_AND_DISTRACTOR = """
<body name="goal" mocap="true" pos="0 0 .001">
  <geom type="cylinder" size=".055 .001" contype="0" conaffinity="0" rgba=".24 .66 .32 1"/></body>
<body name="distractor" mocap="true" pos="0 0 .001">
  <geom type="box" size=".03 .03 .001" contype="0" conaffinity="0" rgba=".93 .79 .25 1"/></body>
"""

_DRAWER = f"""
<body name="goal" mocap="true" pos="0 .3 .06">
  <geom type="box" size=".11 .06 .05" pos="0 .08 0" rgba=".50 .46 .62 1"/>
  <body name="drawer">
    <joint name="drawer" type="slide" axis="0 -1 0" range="0 .22" limited="true" damping="6" frictionloss="1.5"/>
    <geom type="box" size=".09 .01 .04" mass=".4" rgba=".80 .64 .40 1"/>
    <geom name="handle" type="box" size=".029 .006 .008" pos="0 -{CABINET_FACE} 0" mass=".05" rgba=".85 .22 .55 1"/>
    <geom type="box" size=".005 .033 .005" pos=".025 -.042 0" mass=".02" rgba=".85 .22 .55 1"/>
    <geom type="box" size=".005 .033 .005" pos="-.025 -.042 0" mass=".02" rgba=".85 .22 .55 1"/>
  </body>
</body>
"""

_THINGS = {
    "pick": _CUBE + _GOAL_AND_DISTRACTOR,
    "push": _PUCK + _GOAL_AND_DISTRACTOR,
    "drawer": _DRAWER,
    "stack": _CUBE + _BASE_CUBE,
}


def xml(task: str) -> str:
    """The MJCF of ``task``."""
    return f"""
<mujoco model="{task}">
<option timestep="0.01" integrator="implicitfast" cone="elliptic" impratio="10"/>
<default><geom friction="1 .02 .001" condim="4" solref=".02 1"/></default>
<worldbody>
<geom name="table" type="plane" size=".6 .6 .02" rgba=".74 .60 .45 1"/>
<geom name="wall" type="box" size=".6 .02 .4" pos="0 .62 .4" rgba=".72 .78 .84 1"/>
<camera name="front" pos=".34 -.78 .50" xyaxes=".920 .392 0 -.176 .413 .893" fovy="36"/>
{_HAND}
{_THINGS[task]}
</worldbody>
<actuator>
<position joint="x" kp="2500" kv="120"/><position joint="y" kp="2500" kv="120"/><position joint="z" kp="2500" kv="120"/>
<position joint="left" kp="400" forcerange="-12 12"/><position joint="right" kp="400" forcerange="-12 12"/>
</actuator>
</mujoco>
"""


@cache
def model(task: str) -> Any:
    """The compiled MjModel of ``task``, shared by all its worlds since simulation does not change it."""
    return mujoco.MjModel.from_xml_string(xml(task))
